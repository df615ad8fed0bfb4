//! How a rank finds the record of its job: `INTRANODE_REPORT`, which `intranode run --report` sets.

use std::fs::{self, File};
use std::io::{self, Read};
use std::sync::{Arc, Mutex, PoisonError};

use crate::communicator::Communicator;
use crate::job::config::Config;
use crate::job::environment;
use crate::rank::arrivals::Arrivals;
use crate::segment::record::RecordLayout;
use crate::segment::recorder::{Recording, Row};
use crate::sys::file_size::write_stderr;

/// What this process has mapped: by file and rank. A job that is joined again goes on counting.
static ROWS: Mutex<Vec<(String, usize, &'static Row)>> = Mutex::new(Vec::new());

impl Config {
    /// Where the calls of this rank are counted: `None` if nobody asks for it, or in another job. What is wrong with the file
    /// is no error of the job.
    pub(super) fn recording(&self, joining: &Communicator) -> Option<Recording> {
        let path = environment::record_file()?;
        let row = self.row(&path).unwrap_or_else(|error| {
            let rank = self.rank;
            write_stderr(&format!(
                "intranode: rank {rank} is not in the report: INTRANODE_REPORT={path}: {error}\n"
            ));
            None
        })?;
        let mapped = &joining.rank_state.mapped;
        row.take(Box::new(Arrivals::new(mapped, self.rank, &Arc::clone(&joining.joined_as))))
    }

    fn row(&self, path: &str) -> io::Result<Option<&'static Row>> {
        // A pipe would block.
        if !fs::metadata(path)?.is_file() {
            return Err(io::Error::other("it is no file"));
        }
        let mut file = File::options().read(true).write(true).open(path)?;
        let mut header = [0; RecordLayout::HEADER_BYTES];
        file.read_exact(&mut header)?;
        let (layout, job) = RecordLayout::of_header(&header)
            .ok_or_else(|| io::Error::other("it is no record of this version of intranode"))?;
        if (job.as_str(), layout.ranks()) != (&*self.name, self.size) {
            return Ok(None);
        }
        let mut rows = ROWS.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((.., row)) = rows.iter().find(|(file, rank, _)| file == path && *rank == self.rank) {
            return Ok(Some(row));
        }
        let row = Row::map(&file, layout, self.rank)?;
        rows.push((path.to_owned(), self.rank, row));
        Ok(Some(row))
    }
}
