//! Runs a plan on a host and proves the outcome: journal, deadlines, roll-back, verification.
