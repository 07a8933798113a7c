"""What a kernel computes and moves, and which roof of its GPU binds it.

Works on names, launch geometry and recorded shapes; it does not depend on a trace.
"""

from __future__ import annotations

from nsysdoctor.roofline.bound import Roofline, roofs_of
from nsysdoctor.roofline.peaks import DevicePeaks
from nsysdoctor.roofline.profile import DeviceProfile
from nsysdoctor.roofline.taxonomy import classify

__all__ = ["DevicePeaks", "DeviceProfile", "Roofline", "classify", "roofs_of"]
