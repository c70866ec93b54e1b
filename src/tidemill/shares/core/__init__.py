"""The decisions of share groups: no IO; time is an argument."""
