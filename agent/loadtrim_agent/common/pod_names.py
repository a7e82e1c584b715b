"""Names of pods, as Kubernetes' controllers make them up. Pure."""

from __future__ import annotations

import re

__all__ = ["OF_DEPLOYMENT", "OF_STATEFULSET", "WORKLOAD", "number_of"]

WORKLOAD = r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?"
"""The name of a workload."""
_MADE_UP = "[bcdfghjklmnpqrstvwxz2456789]"
"""A letter of the names that Kubernetes makes up. Source: ``k8s.io/apimachinery/pkg/util/rand``."""
OF_DEPLOYMENT = re.compile(f"(?P<name>{WORKLOAD})-(?P<template>{_MADE_UP}{{6,10}})-{_MADE_UP}{{5}}")
"""Deployment, hash of the pod template (a number of 32 bits in these letters), five letters of the pod's own."""
OF_STATEFULSET = re.compile(f"(?P<name>{WORKLOAD})-(?P<ordinal>0|[1-9][0-9]*)")
_DIGITS_MAX = 10


def number_of(text: str) -> int | None:
    """Return the number that stands in a name, of up to ten digits; None: it is none.

    A name comes from another process, and Python takes thousands of digits for an error.
    """
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _DIGITS_MAX else None
