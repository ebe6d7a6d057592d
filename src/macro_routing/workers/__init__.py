"""Working outcomes out in other processes, on this machine or on many, and surviving what happens there."""
