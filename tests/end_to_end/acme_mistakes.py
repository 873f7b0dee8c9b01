"""Adapters of the vendor's package with a mistake. On PYTHONPATH there."""

from acme_npu.adapter import AcmeAdapter

from inductor_debug import AcceleratorAdapter


class NotSwitched(AcmeAdapter):
    """Has switches, and nothing that sets them."""

    switched = AcceleratorAdapter.switched  # type: ignore[assignment]
