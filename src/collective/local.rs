//! A reduction of two slices of one rank: what the collectives do with the contributions of two ranks.

use super::reduction::check_op;
use crate::element::{ReduceOp, Reducible, combine_slices};
use crate::error::{Error, Operation};

impl ReduceOp {
    /// Combines `next[i]` into `into[i]`: `into` has what the ranks before have contributed, `next` what the next one has. So it
    /// gives the same bits as [`reduce`](crate::Communicator::reduce), for a program that has the contributions itself. Not
    /// collective.
    ///
    /// It is `MPI_Reduce_local`, which has the two the other way round.
    ///
    /// ```
    /// use intranode::ReduceOp;
    ///
    /// let mut least = [3.0, f64::NAN];
    /// ReduceOp::Min.combine(&mut least, &[1.0, 2.0])?;
    /// assert!(least[0] == 1.0 && least[1].is_nan());
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidReduction`], of a [`reduce`](crate::Communicator::reduce), if the type does not have the operation.
    ///
    /// # Panics
    /// If the lengths, in elements, differ.
    pub fn combine<T: Reducible>(self, into: &mut [T], next: &[T]) -> Result<(), Error> {
        check_op::<T>(Operation::Reduce, self)?;
        T::update(into, |into| combine_slices::<T>(self, into, &T::encode(next)));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_has_the_bits_of_a_scan() {
        let all = [[0.1, -0.0, f64::NAN], [0.2, 0.0, 1.0], [0.3, 5.0, 2.0]];
        for op in [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Min, ReduceOp::Max] {
            let scanned = crate::threads(3, |comm| {
                let mut own = all[comm.rank()];
                comm.scan_in_place(&mut own, op)?;
                Ok::<_, Error>(own)
            });
            let mut own = all[0];
            for (rank, scanned) in scanned.expect("threads").into_iter().enumerate() {
                if rank > 0 {
                    op.combine(&mut own, &all[rank]).expect("defined for numbers");
                }
                assert_eq!(own.map(f64::to_bits), scanned.expect("no fault").map(f64::to_bits), "{op} {rank}");
            }
        }
    }

    #[test]
    fn what_is_sent_in_another_form_is_combined_too() {
        let mut flags = [true, false];
        ReduceOp::LogicalAnd.combine(&mut flags, &[false, false]).expect("defined for bool");
        assert_eq!(flags, [false, false]);
        let mut pairs = [(2.0, 4), (1.0, 0)];
        ReduceOp::MinLoc.combine(&mut pairs, &[(2.0, 1), (3.0, 1)]).expect("defined for pairs");
        assert_eq!(pairs, [(2.0, 1), (1.0, 0)]);
        assert!(matches!(
            ReduceOp::Sum.combine(&mut flags, &[true, true]),
            Err(Error::InvalidReduction { .. })
        ));
    }
}
