//! The live view.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Cell, Paragraph, Row, Table};
use ratatui::{DefaultTerminal, Frame};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::flag;
use signal_hook::low_level::emulate_default_handler;

use super::report::JobReport;
use super::{SAMPLES, found, nothing, table, tracker::Tracker};

/// The signals that end the view, and not before the terminal is restored.
const ENDING: [i32; 4] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM];

/// How long such a signal waits at most.
const PATIENCE: Duration = Duration::from_millis(200);

/// Until q, Escape, ^C or a signal.
pub(super) fn run(job: Option<&str>, interval: Duration) -> Result<u8> {
    // Before the screen is taken over, so that an error can be read.
    let trackers = super::track(job)?;
    let ended_by = Arc::new(AtomicUsize::new(0));
    for signal in ENDING {
        flag::register_usize(signal, Arc::clone(&ended_by), signal as usize)
            .context("cannot handle signals")?;
    }
    // Restores the terminal after a panic too.
    let mut terminal = ratatui::try_init().context("the terminal cannot show a live view; use --once")?;
    let outcome = show(&mut terminal, View { job, interval, trackers, reports: Vec::new() }, &ended_by);
    let restored = ratatui::try_restore().context("the terminal cannot be restored; use the command reset");
    // That shows the cursor again.
    drop(terminal);
    if let signal @ 1.. = ended_by.load(Ordering::Relaxed) {
        // As without a handler.
        emulate_default_handler(signal as i32).context("cannot end by a signal")?;
    }
    restored.and(outcome).map(|()| 0)
}

struct View<'a> {
    job: Option<&'a str>,
    interval: Duration,
    trackers: Vec<Tracker>,
    /// Of the interval that has ended last.
    reports: Vec<JobReport>,
}

fn show(terminal: &mut DefaultTerminal, mut view: View<'_>, ended_by: &AtomicUsize) -> Result<()> {
    let pause = view.interval / SAMPLES;
    let mut until = Instant::now() + view.interval.min(Duration::from_millis(200));
    loop {
        terminal.draw(|frame| view.draw(frame)).context("the terminal cannot be written to")?;
        while Instant::now() < until {
            let next = Instant::now() + pause;
            loop {
                let left = next.saturating_duration_since(Instant::now());
                let has_event = event::poll(left.min(PATIENCE)).context("the terminal cannot be read")?;
                if ended_by.load(Ordering::Relaxed) != 0 || has_event && is_quit(&event::read()?) {
                    return Ok(());
                }
                if has_event || left <= PATIENCE {
                    break;
                }
            }
            view.trackers.iter_mut().for_each(Tracker::sample);
        }
        view.end_interval()?;
        until = Instant::now() + view.interval;
    }
}

fn is_quit(event: &Event) -> bool {
    let Event::Key(key) = event else { return false };
    let is_interrupt = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    key.kind == KeyEventKind::Press && (is_interrupt || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc))
}

impl View<'_> {
    /// Keeps what was measured, and looks for jobs that have come or gone.
    fn end_interval(&mut self) -> Result<()> {
        self.reports = self.trackers.iter().map(Tracker::report).collect();
        self.trackers.retain(Tracker::is_alive);
        self.trackers.iter_mut().for_each(Tracker::restart);
        for found in found::all()? {
            let is_known = self.trackers.iter().any(|tracker| tracker.is_of(&found));
            if !is_known && self.job.is_none_or(|job| found.is(job)) {
                self.trackers.push(Tracker::new(found));
            }
        }
        Ok(())
    }

    fn draw(&self, frame: &mut Frame<'_>) {
        let heights = self.reports.iter().map(|report| Constraint::Length(report.ranks.len() as u16 + 3));
        let areas = Layout::vertical([Constraint::Length(1)].into_iter().chain(heights)).split(frame.area());
        let help = match self.reports.is_empty() {
            true => nothing(self.job) + "; q: quit",
            false => "q: quit   *: the slowest rank   red: dead or frozen".to_owned(),
        };
        frame.render_widget(Paragraph::new(Line::from(help)), areas[0]);
        for (report, area) in self.reports.iter().zip(areas.iter().skip(1)) {
            let [title, rows] = Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(*area);
            frame.render_widget(Line::from(table::title(report)), title);
            frame.render_widget(rows_of(report, rows.width), rows);
        }
    }
}

/// Widths that change little from one picture to the next.
const WIDTHS: [usize; 14] = [1, 5, 8, 4, 5, 8, 20, 10, 9, 10, 18, 9, 5, 10];

/// The columns that a narrow terminal has no room for, the first one first: a number of which a part is shown is another number.
const DISPENSABLE: [&str; 11] =
    ["memory", "bytes/s", "cpu", "round", "cpu%", "rounds/s", "late", "operation", "since", "pid", "waits for"];

fn rows_of(report: &JobReport, room: u16) -> Table<'static> {
    let cells: Vec<Vec<String>> = report.ranks.iter().map(table::cells).collect();
    let columns = columns(&cells, room.into());
    let rows = report.ranks.iter().zip(&cells).map(|(rank, cells)| {
        let style = match rank {
            rank if rank.state.is_alarming() => Style::new().fg(Color::Red),
            rank if rank.slowest => Style::new().add_modifier(Modifier::BOLD),
            _ => Style::new(),
        };
        Row::new(columns.iter().map(|(column, _)| Cell::from(cells[*column].clone()))).style(style)
    });
    let header = Row::new(columns.iter().map(|(column, _)| table::COLUMNS[*column]));
    let header = header.style(Style::new().add_modifier(Modifier::REVERSED));
    let widths = columns.iter().map(|(_, width)| Constraint::Length(*width as u16));
    Table::new(rows, widths).header(header)
}

/// The columns that are shown, with their widths.
fn columns(cells: &[Vec<String>], room: usize) -> Vec<(usize, usize)> {
    let widest = |column: usize| {
        let rows = cells.iter().map(|row| row[column].chars().count());
        rows.chain([table::COLUMNS[column].chars().count(), 1]).max().unwrap_or(1)
    };
    // One between two columns.
    let fits =
        |columns: &[(usize, usize)]| columns.iter().map(|(_, width)| width + 1).sum::<usize>() <= room + 1;
    let mut columns: Vec<_> =
        (0..WIDTHS.len()).map(|column| (column, WIDTHS[column].max(widest(column)))).collect();
    if !fits(&columns) {
        columns.iter_mut().for_each(|(column, width)| *width = widest(*column));
    }
    for name in DISPENSABLE {
        if fits(&columns) {
            break;
        }
        columns.retain(|(column, _)| table::COLUMNS[*column] != name);
    }
    columns
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::crossterm::event::KeyEvent;

    #[test]
    fn columns_without_room_are_left_out_as_a_whole() {
        let row = |pid: &str| {
            let others = ["0,1", "12.5 s", "100%", "9.5 MiB"];
            let first = ["*", "0", pid, "1", "99", "waits", "allreduce", "1234567", "15065", "48.5 MiB"];
            first.iter().chain(&others).map(|text| text.to_string()).collect::<Vec<String>>()
        };
        let cells = [row("1"), row("4194303")];
        let shown =
            |room| columns(&cells, room).iter().map(|(column, _)| table::COLUMNS[*column]).collect::<Vec<_>>();
        assert_eq!(shown(140), table::COLUMNS);
        assert_eq!(shown(100), table::COLUMNS);
        assert_eq!(shown(20), ["", "rank", "state"]);
        assert!(shown(80).contains(&"pid") && !shown(80).contains(&"memory"), "{:?}", shown(80));
        for room in 14..200 {
            let columns = columns(&cells, room);
            assert!(
                columns.iter().map(|(_, width)| width + 1).sum::<usize>() <= room + 1,
                "{room}: {columns:?}"
            );
            assert!(
                columns.iter().all(|(column, width)| cells[1][*column].len() <= *width),
                "{room}: {columns:?}"
            );
        }
        // Wide ones do not move with their content.
        assert_eq!(columns(&cells, 140), columns(&cells[..1], 140));
    }

    #[test]
    fn some_keys_quit_and_others_do_not() {
        let key = |code, modifiers| Event::Key(KeyEvent::new(code, modifiers));
        assert!(is_quit(&key(KeyCode::Char('q'), KeyModifiers::NONE)));
        assert!(is_quit(&key(KeyCode::Char('c'), KeyModifiers::CONTROL)));
        assert!(!is_quit(&key(KeyCode::Char('c'), KeyModifiers::NONE)) && !is_quit(&Event::FocusGained));
    }
}
