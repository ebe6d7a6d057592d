"""Evaluations in other processes, on this machine or on many, with retries and timeouts.

``worker_pool.create_worker_pool`` is the entry; ``backend.WorkerBackend`` is what a new backend implements.
"""
