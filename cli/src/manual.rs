//! `intranode man`: the manual pages, generated from the command line's definition.

use std::fs;
use std::io;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Args, Command};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

const AFTER_HELP: &str = "\
Examples:
  intranode man ~/.local/share/man/man1
      For one user. They are read by `man intranode-run`.
  intranode man /usr/local/share/man/man1
      For all users.";

/// Write the manual pages into a directory
///
/// There is one page for the program, and one for each command.
#[derive(Args)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct ManualArguments {
    /// The directory; it is created if it does not exist
    #[arg(value_name = "DIRECTORY")]
    directory: PathBuf,
}

pub(crate) fn write(arguments: &ManualArguments, command: Command) -> Result<u8> {
    let directory = &arguments.directory;
    fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
    for page in pages(command)? {
        let file = directory.join(page.file);
        fs::write(&file, page.text).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(0)
}

struct Page {
    file: String,
    text: Vec<u8>,
}

/// The pages of the program and of its commands.
fn pages(command: Command) -> io::Result<Vec<Page>> {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let source = format!("{} {}", command.get_name(), command.get_version().unwrap_or_default());
    let commands: Vec<Command> = command.get_subcommands().cloned().collect();
    [command].into_iter().chain(commands).map(|command| page(command, &source)).collect()
}

fn page(command: Command, source: &str) -> io::Result<Page> {
    let sections = command.get_after_long_help().map(|help| sections(&help.to_string()));
    let has_commands = command.has_subcommands();
    // An empty date would be omitted from the title line, and the source taken for the date.
    let man = Man::new(command).date(" ").source(source).manual("User Commands");
    let mut text = Vec::new();
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    man.render_synopsis_section(&mut text)?;
    man.render_description_section(&mut text)?;
    man.render_options_section(&mut text)?;
    if has_commands {
        man.render_subcommands_section(&mut text)?;
    }
    if let Some(sections) = sections {
        sections.to_writer(&mut text)?;
    }
    Ok(Page { file: man.get_filename(), text })
}

/// The sections after the options. In `--help` a section is a heading that ends with a colon, and below it terms, indented by
/// two spaces, each with its explanation, indented by six.
fn sections(help: &str) -> Roff {
    let mut roff = Roff::new();
    for line in help.lines().filter(|line| !line.is_empty()) {
        let text = line.trim_start();
        match line.len() - text.len() {
            0 => {
                roff.control("SH", [text.trim_end_matches(':').to_uppercase().as_str()]);
            }
            2 => {
                roff.control("TP", []);
                roff.text([bold(text)]);
            }
            _ => {
                roff.text([roman(text)]);
            }
        }
    }
    roff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_terms_and_explanations_become_macros() {
        let help = "Exit status:\n  0\n      All is well.\n\nExamples:\n  a -n 4\n      Does it.\n      Twice.";
        let expected = "\
            .SH \"EXIT STATUS\"\n.TP\n\\fB0\\fR\nAll is well.\n\
            .SH EXAMPLES\n.TP\n\\fBa \\-n 4\\fR\nDoes it.\nTwice.\n";
        assert_eq!(sections(help).to_roff(), expected);
    }
}
