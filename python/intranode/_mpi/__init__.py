"""What `intranode.MPI` is made of."""
