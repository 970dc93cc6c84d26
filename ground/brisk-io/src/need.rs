/// How the loaded bytes will be used.
///
/// The default is the simplest use: only this process needs them, and it reads all of them soon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Need {
    /// Which bytes will be touched.
    pub touch: Touch,
    /// The form in which they are needed.
    pub form: Form,
    /// How many processes of this machine load the same bytes at about the same time, including this one.
    pub processes: usize,
}

/// Which of the loaded bytes will be touched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Touch {
    /// All, soon, mostly from start to end.
    #[default]
    All,
    /// Some parts, each from its start to its end.
    Part,
    /// Many of them, here and there, in no order.
    Random,
    /// A few bytes here and there: less than about one page in twenty.
    Few,
}

/// The form in which the loaded bytes are needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Form {
    /// As they are in the file.
    #[default]
    Shared,
    /// Writable, to relocate or patch. The file does not change. Patched pages take memory of this process.
    /// Mostly everything that is loaded does, because a copy of everything is often fastest, except with
    /// [`Touch::Few`].
    Patched,
    /// Read once, to copy, decode or send them somewhere else.
    Copied,
}

impl Default for Need {
    fn default() -> Self {
        Self {
            touch: Touch::All,
            form: Form::Shared,
            processes: 1,
        }
    }
}

impl Need {
    /// This process alone reads all of the bytes soon.
    pub fn new() -> Self {
        Self::default()
    }

    /// Which bytes will be touched.
    #[must_use]
    pub fn touch(mut self, touch: Touch) -> Self {
        self.touch = touch;
        self
    }

    /// In which form they are needed.
    #[must_use]
    pub fn form(mut self, form: Form) -> Self {
        self.form = form;
        self
    }

    /// Processes that load the same bytes at about the same time, this one among them.
    #[must_use]
    pub fn processes(mut self, processes: usize) -> Self {
        self.processes = processes;
        self
    }
}
