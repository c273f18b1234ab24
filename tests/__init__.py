"""Tests, from the inside out: unit, scenarios, properties, simulation, contracts, system; tidy/ watches the house rules."""
