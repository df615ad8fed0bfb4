//! `intranode completions`: a shell's completion script, generated from the command line's definition.

use std::io::{Write, stdout};

use anyhow::{Context, Result};
use clap::{Args, Command};
use clap_complete::Shell;

const AFTER_HELP: &str = "\
Examples:
  intranode completions bash > ~/.local/share/bash-completion/completions/intranode
      For bash with bash-completion.
  intranode completions fish > ~/.config/fish/completions/intranode.fish
      For fish.
  intranode completions zsh > DIRECTORY/_intranode
      For zsh, where DIRECTORY is in $fpath.";

/// Print a completion script for a shell
#[derive(Args)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct CompletionsArguments {
    /// The shell that the script is for
    shell: Shell,
}

pub(crate) fn print(arguments: &CompletionsArguments, mut command: Command) -> Result<u8> {
    let name = command.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, name, &mut script);
    stdout().write_all(&script).context("cannot write the script")?;
    Ok(0)
}
