"""Several pools in one network: plan, statistics and report."""
