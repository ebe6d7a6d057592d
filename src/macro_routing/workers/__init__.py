"""Evaluations in other processes, on this machine or on many, with retries and timeouts.

Public names are in their modules: ``settings.WorkerSettings``, ``pool.create_worker_pool``, ``backend.WorkerBackend``.
"""
