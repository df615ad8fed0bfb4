//! Train and simulate a Cobre case over the processes of one machine.

use std::process::ExitCode;

fn main() -> ExitCode {
    intranode_cobre::driver::program()
}
