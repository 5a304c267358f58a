"""What programs do with a CUDA device: the checks of both modules, in one process."""

import warnings

warnings.simplefilter("ignore")

import virtual_layers
import virtual_tensors
