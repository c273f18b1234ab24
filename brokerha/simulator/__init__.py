"""SIMULATOR: a whole cluster of the shipped code in one deterministic world."""
from brokerha.simulator.campaign import Report, Summary, campaign, simulate
