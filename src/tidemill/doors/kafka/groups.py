"""The group APIs."""

from tidemill.doors.kafka.api import Api, Feature

APIS: list[Api] = []
FEATURES: list[Feature] = []
