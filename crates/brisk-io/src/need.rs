/// How bytes that are loaded will be used.
///
/// The default is the plainest: this process alone reads all of them soon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Need {
    /// Which of them will be touched.
    pub touch: Touch,
    /// In which form.
    pub form: Form,
    /// Processes of this machine that load the same bytes at about the same time, this one among them.
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
    /// A few bytes here and there: fewer than about one page of twenty.
    Few,
}

/// What form the loaded bytes are needed in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Form {
    /// As they are in the file.
    #[default]
    Shared,
    /// Writable: to be relocated or patched. The file does not change. What is patched takes memory of the process's
    /// own, and mostly all that is loaded does: but for [`Touch::Few`], a copy of all is often the fastest way.
    Patched,
    /// Read once, to be copied, decoded or sent somewhere else.
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
