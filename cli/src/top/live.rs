//! The live view.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Cell, Paragraph, Row, Table};
use ratatui::{DefaultTerminal, Frame};

use super::report::JobReport;
use super::{SAMPLES, found, nothing, table, tracker::Tracker};

/// Until q, Escape or ^C.
pub(super) fn run(job: Option<&str>, interval: Duration) -> Result<u8> {
    // Before the screen is taken over, so that an error can be read.
    let trackers = super::track(job)?;
    // Restores the terminal after a panic too.
    let mut terminal = ratatui::try_init().context("the terminal cannot show a live view; use --once")?;
    let outcome = show(&mut terminal, View { job, interval, trackers, reports: Vec::new() });
    ratatui::try_restore().context("the terminal cannot be restored; use the command reset")?;
    outcome.map(|()| 0)
}

struct View<'a> {
    job: Option<&'a str>,
    interval: Duration,
    trackers: Vec<Tracker>,
    /// Of the interval that has ended last.
    reports: Vec<JobReport>,
}

fn show(terminal: &mut DefaultTerminal, mut view: View<'_>) -> Result<()> {
    let pause = view.interval / SAMPLES;
    let mut until = Instant::now() + view.interval.min(Duration::from_millis(200));
    loop {
        terminal.draw(|frame| view.draw(frame)).context("the terminal cannot be written to")?;
        while Instant::now() < until {
            if event::poll(pause).context("the terminal cannot be read")? && is_quit(&event::read()?) {
                return Ok(());
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
            frame.render_widget(rows_of(report), rows);
        }
    }
}

fn rows_of(report: &JobReport) -> Table<'static> {
    let rows = report.ranks.iter().map(|rank| {
        let style = match rank {
            rank if rank.state.is_alarming() => Style::new().fg(Color::Red),
            rank if rank.slowest => Style::new().add_modifier(Modifier::BOLD),
            _ => Style::new(),
        };
        Row::new(table::cells(rank).into_iter().map(Cell::from)).style(style)
    });
    const WIDTHS: [u16; 14] = [1, 5, 8, 4, 5, 8, 20, 10, 9, 10, 18, 9, 5, 10];
    let header = Row::new(table::COLUMNS).style(Style::new().add_modifier(Modifier::REVERSED));
    Table::new(rows, WIDTHS.map(Constraint::Length)).header(header)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::crossterm::event::KeyEvent;

    #[test]
    fn some_keys_quit_and_others_do_not() {
        let key = |code, modifiers| Event::Key(KeyEvent::new(code, modifiers));
        assert!(is_quit(&key(KeyCode::Char('q'), KeyModifiers::NONE)));
        assert!(is_quit(&key(KeyCode::Char('c'), KeyModifiers::CONTROL)));
        assert!(!is_quit(&key(KeyCode::Char('c'), KeyModifiers::NONE)) && !is_quit(&Event::FocusGained));
    }
}
