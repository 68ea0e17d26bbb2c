"""``python -m learnpool`` is ``learnpool``; so is ``torchrun -m learnpool``, in many processes."""

from .cli import main

if __name__ == "__main__":
    main()
