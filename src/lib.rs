//! Collectives and shared memory between the processes of one machine.
