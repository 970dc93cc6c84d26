//! Generates a program, both in WebAssembly and as a function that computes the expected result.

use wasm_encoder::{
    BlockType, CodeSection, ExportKind, ExportSection, Function, FunctionSection, InstructionSink,
    Module, TypeSection, ValType,
};

/// Steps of each function. They become about 2 KB of machine code.
const STEPS: usize = 150;

/// Words that a function works on.
const WORDS: usize = 4;

/// Functions from number to number, and two exports that call them one after the other.
pub(crate) struct Program {
    functions: Vec<Vec<Step>>,
}

/// Changes one word with another one.
struct Step {
    word: usize,
    by: usize,
    constant: i32,
    what: What,
}

#[derive(Clone, Copy)]
enum What {
    Add,
    Xor,
    Multiply,
    Rotate,
    /// Takes the constant if the other word is odd.
    Choose,
}

/// Which functions an export calls: each one whose number is a multiple of this.
#[derive(Clone, Copy)]
pub(crate) struct Export {
    pub(crate) name: &'static str,
    every: usize,
}

pub(crate) const ALL: Export = Export {
    name: "all",
    every: 1,
};
pub(crate) const FEW: Export = Export {
    name: "few",
    every: 100,
};

impl Program {
    pub(crate) fn generate(functions: usize) -> Self {
        let mut rng = fastrand::Rng::with_seed(6);
        let whats = [
            What::Add,
            What::Xor,
            What::Multiply,
            What::Rotate,
            What::Choose,
        ];
        let mut step = || Step {
            word: rng.usize(..WORDS),
            by: rng.usize(..WORDS),
            constant: rng.i32(..),
            what: whats[rng.usize(..whats.len())],
        };
        let functions = (0..functions).map(|_| (0..STEPS).map(|_| step()).collect());
        Self {
            functions: functions.collect(),
        }
    }

    /// The result of the export for `x`.
    pub(crate) fn result(&self, export: Export, x: i32) -> i32 {
        let called = self.functions.iter().step_by(export.every);
        called.fold(x, |x, steps| {
            let mut words = [x; WORDS];
            for step in steps {
                let (old, by) = (words[step.word], words[step.by]);
                words[step.word] = match step.what {
                    What::Add => old.wrapping_add(by).wrapping_add(step.constant),
                    What::Xor => old ^ by ^ step.constant,
                    What::Multiply => old.wrapping_mul(by | 1).wrapping_add(step.constant),
                    What::Rotate => old.rotate_left(by as u32 % 32).wrapping_add(step.constant),
                    What::Choose if by & 1 != 0 => old.wrapping_add(step.constant),
                    What::Choose => old ^ by,
                };
            }
            words.into_iter().fold(0, |sum, word| sum ^ word)
        })
    }

    pub(crate) fn wasm(&self) -> Vec<u8> {
        let exports = [ALL, FEW];
        let mut types = TypeSection::new();
        types.ty().function([ValType::I32], [ValType::I32]);
        let (mut kinds, mut code) = (FunctionSection::new(), CodeSection::new());
        for steps in &self.functions {
            kinds.function(0);
            code.function(&encode(steps));
        }
        let mut names = ExportSection::new();
        for (export, index) in exports.into_iter().zip(self.functions.len() as u32..) {
            kinds.function(0);
            names.export(export.name, ExportKind::Func, index);
            let mut function = Function::new([]);
            let mut body = function.instructions();
            body.local_get(0);
            for called in (0..self.functions.len() as u32).step_by(export.every) {
                body.call(called);
            }
            body.end();
            code.function(&function);
        }
        let mut module = Module::new();
        module
            .section(&types)
            .section(&kinds)
            .section(&names)
            .section(&code);
        module.finish()
    }
}

fn encode(steps: &[Step]) -> Function {
    // The argument is the first word.
    let mut function = Function::new([(WORDS as u32 - 1, ValType::I32)]);
    let mut body = function.instructions();
    for word in 1..WORDS as u32 {
        body.local_get(0).local_set(word);
    }
    for step in steps {
        let (word, by) = (step.word as u32, step.by as u32);
        let both = |body: &mut InstructionSink<'_>| {
            body.local_get(word).local_get(by);
        };
        match step.what {
            What::Add => {
                both(&mut body);
                body.i32_add().i32_const(step.constant).i32_add();
            }
            What::Xor => {
                both(&mut body);
                body.i32_xor().i32_const(step.constant).i32_xor();
            }
            What::Multiply => {
                both(&mut body);
                body.i32_const(1).i32_or().i32_mul();
                body.i32_const(step.constant).i32_add();
            }
            What::Rotate => {
                both(&mut body);
                body.i32_rotl().i32_const(step.constant).i32_add();
            }
            What::Choose => {
                body.local_get(by).i32_const(1).i32_and();
                body.if_(BlockType::Result(ValType::I32));
                body.local_get(word).i32_const(step.constant).i32_add();
                body.else_();
                both(&mut body);
                body.i32_xor().end();
            }
        }
        body.local_set(word);
    }
    body.local_get(0);
    for word in 1..WORDS as u32 {
        body.local_get(word).i32_xor();
    }
    body.end();
    function
}
