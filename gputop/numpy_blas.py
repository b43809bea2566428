"""How to switch NumPy to MKL on an Intel CPU: shared by the OpenBLAS rule and the doctor.

Wheels from pip always contain OpenBLAS. Conda has both, and some mirrors of its own channel OpenBLAS only.
"""

from __future__ import annotations

IN_CONDA_FORGE = 'conda install "libblas=*=*mkl" numpy'
IN_DEFAULTS = 'conda install --override-channels -c defaults "blas=*=mkl" numpy'
AFTER_PIP = f"pip uninstall -y numpy; {IN_CONDA_FORGE}"
WITHOUT_CONDA = 'conda create -n mkl -c conda-forge python "libblas=*=*mkl" numpy'
UNTIL_THEN = "export OPENBLAS_NUM_THREADS=1"


def intel(cpu: str) -> bool:
    """Whether a CPU is Intel's, by vendor or model: on others MKL is no gain."""
    return "Intel" in cpu
