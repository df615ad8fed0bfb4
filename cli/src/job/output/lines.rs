//! A stream divided into lines with the rank as a prefix.

/// A longer line is divided: a program that never ends its line must not fill the launcher's memory.
const MAX_LINE: usize = 1 << 20;

pub(super) struct Lines {
    tag: String,
    partial: Vec<u8>,
}

impl Lines {
    pub(super) fn new(rank: u32) -> Self {
        Self { tag: format!("[{rank}] "), partial: Vec::new() }
    }

    pub(super) fn push(&mut self, bytes: &[u8], tagged: &mut Vec<u8>) {
        for line in bytes.split_inclusive(|&byte| byte == b'\n') {
            self.partial.extend_from_slice(line);
            if line.ends_with(b"\n") || self.partial.len() >= MAX_LINE {
                self.finish(tagged);
            }
        }
    }

    /// Ends the current line.
    pub(super) fn finish(&mut self, tagged: &mut Vec<u8>) {
        if self.partial.is_empty() {
            return;
        }
        tagged.extend_from_slice(self.tag.as_bytes());
        tagged.append(&mut self.partial);
        if !tagged.ends_with(b"\n") {
            tagged.push(b'\n');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tagged(reads: &[&str]) -> String {
        let mut lines = Lines::new(3);
        let mut tagged = Vec::new();
        for read in reads {
            lines.push(read.as_bytes(), &mut tagged);
        }
        lines.finish(&mut tagged);
        String::from_utf8(tagged).unwrap()
    }

    #[test]
    fn lines_are_whole_however_they_arrive() {
        assert_eq!(tagged(&["a\nb\n"]), "[3] a\n[3] b\n");
        assert_eq!(tagged(&["a", "b\nc", "\n\n"]), "[3] ab\n[3] c\n[3] \n");
    }

    #[test]
    fn a_last_line_without_its_end_is_not_lost() {
        assert_eq!(tagged(&["a\nb"]), "[3] a\n[3] b\n");
        assert_eq!(tagged(&[]), "");
    }

    #[test]
    fn a_line_without_end_does_not_grow_for_ever() {
        let mut lines = Lines::new(0);
        let mut tagged = Vec::new();
        for _ in 0..20 {
            lines.push(&[b'x'; 1 << 16], &mut tagged);
        }
        assert_eq!(tagged.len(), "[0] ".len() + MAX_LINE + 1);
    }
}
