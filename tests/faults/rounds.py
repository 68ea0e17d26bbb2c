"""How hard to try: ``make test-faults`` sets LEARNPOOL_FAULTS, other runs of the tests do a small part."""

import os

ROUNDS = int(os.environ.get("LEARNPOOL_FAULTS", "2"))
