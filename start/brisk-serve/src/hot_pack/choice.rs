//! Decides which hot pack is used, and whether brisk learns from the launch.

/// What a session does with the hot packs of one image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Choice {
    /// Fill from a pack that somebody made for the image, if one is usable.
    Made,
    /// Fill from the learned pack, and record what the launch asks for beyond it.
    Learned,
    /// Fill nothing, and record the launch completely, to learn a pack from it.
    Learn,
}

impl Choice {
    /// `made`: a pack that somebody made for the image is usable. `learned`: whether a learned one is. None
    /// if sessions learn nothing.
    pub(crate) fn of(made: bool, learned: Option<bool>) -> Self {
        match (made, learned) {
            (true, _) | (_, None) => Self::Made,
            (false, Some(true)) => Self::Learned,
            (false, Some(false)) => Self::Learn,
        }
    }
}

/// The first usable one of `candidates`: it exists, and nothing speaks against it. Earlier ones are reported
/// to `refused`, later ones are not looked at.
pub(crate) fn first_of_use<T, E>(
    candidates: impl IntoIterator<Item = Result<Option<T>, E>>,
    mut refused: impl FnMut(E),
) -> Option<T> {
    for candidate in candidates {
        match candidate {
            Ok(Some(pack)) => return Some(pack),
            Ok(None) => {}
            Err(why) => refused(why),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pack_that_somebody_made_comes_before_a_learned_one() {
        for (made, learned, choice) in [
            (true, None, Choice::Made),
            (true, Some(true), Choice::Made),
            (true, Some(false), Choice::Made),
            (false, Some(true), Choice::Learned),
            (false, Some(false), Choice::Learn),
            // Those that are not usable are reported.
            (false, None, Choice::Made),
        ] {
            let found = Choice::of(made, learned);
            assert_eq!(found, choice, "made {made}, learned {learned:?}");
        }
    }

    #[test]
    fn the_first_pack_of_use_is_taken() {
        type Candidates<'a> = &'a [Result<Option<u8>, &'a str>];
        let cases: [(Candidates<'_>, Option<u8>, &[&str], usize); 7] = [
            (&[], None, &[], 0),
            (&[Ok(None), Ok(None)], None, &[], 2),
            (&[Ok(Some(1)), Ok(Some(2))], Some(1), &[], 1),
            (&[Ok(None), Ok(Some(2)), Err("damaged")], Some(2), &[], 2),
            (
                &[Err("of others"), Err("damaged"), Ok(Some(3))],
                Some(3),
                &["of others", "damaged"],
                3,
            ),
            (&[Err("damaged"), Ok(None)], None, &["damaged"], 2),
            (
                &[Err("damaged"), Err("of another image")],
                None,
                &["damaged", "of another image"],
                2,
            ),
        ];
        for (candidates, taken, reasons, looked_at) in cases {
            let (mut refused, mut looked) = (Vec::new(), 0);
            let candidates = candidates.iter().inspect(|_| looked += 1).cloned();
            let found = first_of_use(candidates, |why| refused.push(why));
            assert_eq!(
                (found, refused.as_slice(), looked),
                (taken, reasons, looked_at)
            );
        }
    }
}
