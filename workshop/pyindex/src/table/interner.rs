use std::collections::HashMap;

/// Gives each distinct text a number, from 0 on.
#[derive(Debug, Default)]
pub(crate) struct Interner {
    numbers: HashMap<Box<str>, u32>,
    texts: Vec<Box<str>>,
}

impl Interner {
    /// None if there are 4 Gi texts already.
    pub(crate) fn number(&mut self, text: &str) -> Option<u32> {
        if let Some(number) = self.numbers.get(text) {
            return Some(*number);
        }
        let number = u32::try_from(self.texts.len()).ok()?;
        self.numbers.insert(text.into(), number);
        self.texts.push(text.into());
        Some(number)
    }

    /// The text of a number that it has given.
    pub(crate) fn text(&self, number: u32) -> &str {
        &self.texts[number as usize]
    }

    /// The texts in the order of their numbers.
    pub(crate) fn texts(&self) -> &[Box<str>] {
        &self.texts
    }
}
