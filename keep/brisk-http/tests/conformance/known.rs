//! The tests that do not pass, each with its reason. The run fails if one of them passes, or if another one does not.

/// Tests and one reason for all of them.
pub type Known = (&'static [&'static str], &'static str);

const LENGTH: Known = (
    &[
        "partial-store-partial-reuse-partial",
        "partial-store-partial-reuse-partial-absent",
        "partial-store-partial-reuse-partial-byterange",
        "partial-store-partial-reuse-partial-suffix",
    ],
    "The test's 206 announces 6 bytes (Content-Range: bytes 4-9/10) and has 5. Such a part is not stored: nobody knows \
     which bytes it has.",
);

const JOIN: Known = (
    &["partial-store-partial-complete"],
    "The test's 206 has no validator, and parts are joined only by a strong one (RFC 9111, section 3.4). With one, the \
     rest is asked for: see `a_part_is_completed_if_a_strong_validator_joins_it`.",
);

const NO_LAST_MODIFIED: Known = (
    &["conditional-lm-fresh-no-lm"],
    "The stored response has no Last-Modified, so its Date counts (RFC 9111, section 4.3.2). It is later than \
     If-Modified-Since, so the answer is 200.",
);

const LANGUAGE: Known = (
    &["vary-normalise-lang-select"],
    "That the client likes German best, and that the stored response is German, does not show that the origin has \
     nothing better for this client.",
);

/// Answers to questions, in both versions.
const NO: &[Known] = &[
    (
        &["ccreq-no-store"],
        "no-store of a request forbids to store, not to use what is stored (RFC 9111, section 5.2.1.5).",
    ),
    (
        &[
            "conditional-etag-forward-unquoted",
            "conditional-etag-quoted-respond-unquoted",
            "conditional-etag-strong-generate-unquoted",
            "conditional-etag-unquoted-respond-quoted",
            "conditional-etag-unquoted-respond-unquoted",
            "conditional-etag-weak-respond-backslash",
            "conditional-etag-weak-respond-lowercase",
            "conditional-etag-weak-respond-omit-slash",
        ],
        "The entity tag is not valid. It is passed on as it is, and never compared.",
    ),
    (
        &["conditional-etag-vary-headers-mismatch"],
        "Only the selected response is validated, not other variants.",
    ),
    (
        &[
            "freshness-max-age-100a",
            "freshness-max-age-a100",
            "freshness-max-age-decimal-five",
            "freshness-max-age-decimal-zero",
        ],
        "A lifetime that is no number is 0 (RFC 9111, section 4.2.1).",
    ),
    (
        &[
            "freshness-max-age-two-stale-fresh-sameline",
            "freshness-max-age-two-stale-fresh-sepline",
        ],
        "The first of several lifetimes counts.",
    ),
    (
        &["head-410-update"],
        "Only a 200 to HEAD updates what is stored (RFC 9111, section 4.3.5).",
    ),
    (
        &[
            "heuristic-delta-5",
            "heuristic-delta-10",
            "heuristic-delta-30",
        ],
        "A tenth of the time since the last change is over when the test asks again, after 3 seconds.",
    ),
    (
        &["stale-503"],
        "Without stale-if-error, an error is passed on. Only an origin that cannot be reached is replaced.",
    ),
    (
        &["stale-warning-become", "stale-warning-stored"],
        "RFC 9111 has no Warning any more. Cache-Status says what happened.",
    ),
];

/// More, in both versions, where the suite's own parties speak to `brisk proxy` over connections.
pub const OVER_CONNECTIONS: &[Known] = &[
    (
        &[
            "interim-102",
            "interim-103",
            "interim-no-header-reuse",
            "interim-not-cached",
        ],
        "The proxy passes no interim responses on, because its HTTP library cannot send any. Its cache stores none: the \
         runner in Rust passes them on, and all four tests pass.",
    ),
    (
        &["conditional-etag-strong-respond-obs-text"],
        "The suite's server sends the ü of this entity tag in UTF-8 and its client in ISO 8859-1, so the two tags differ. \
         No cache that is compared here passes.",
    ),
];

/// More, in both versions, where `brisk proxy` itself speaks to the suite's server.
pub const OF_PROXY: &[Known] = &[(
    &["headers-store-Transfer-Encoding"],
    "The suite's server sends its answer with a length and with this field. Where an answer ends is in doubt then, so the \
     proxy gives 502 (RFC 9112, section 6.3).",
)];

/// Of the suite at commit b55b8bda.
pub fn current() -> Vec<Known> {
    let own: &[Known] = &[
        LENGTH,
        JOIN,
        NO_LAST_MODIFIED,
        LANGUAGE,
        (
            &[
                "304-etag-update-response-Content-Encoding",
                "304-etag-update-response-Content-Range",
            ],
            "These fields describe the stored bytes, so a 304 leaves them (RFC 9111, section 3.2).",
        ),
        (
            &["304-etag-update-response-ETag"],
            "A 304 with another strong entity tag must not update the stored response (RFC 9111, section 4.3.4). The \
             request is sent again without conditions, which the suite takes for a retry.",
        ),
        (
            &["age-parse-numeric-parameter", "age-parse-parameter"],
            "An Age that is no number is ignored (RFC 9111, section 5.1).",
        ),
        (
            &["cdn-max-age-case-insensitive"],
            "Keys of structured fields are in lower case (RFC 8941, section 3.2), so the field is invalid.",
        ),
        (
            &["other-age-delay"],
            "A response that comes from the origin now gets no Age of this cache.",
        ),
    ];
    [own, NO].concat()
}

/// Of the package http-cache-tests 0.4.5, which is older than RFC 9111.
pub fn package() -> Vec<Known> {
    let own: &[Known] = &[
        LENGTH,
        JOIN,
        NO_LAST_MODIFIED,
        LANGUAGE,
        (
            &[
                "age-parse-dup-0",
                "age-parse-dup-0-twoline",
                "age-parse-dup-old",
                "age-parse-float",
                "age-parse-negative",
                "age-parse-nonnumeric",
                "age-parse-numeric-parameter",
                "age-parse-parameter",
                "age-parse-prefix-twoline",
            ],
            "The package wants an Age that is invalid, or there twice, to make a response stale. RFC 9111, section 5.1, \
             says to ignore it, or to take the first one, and the current suite agrees.",
        ),
        (
            &[
                "stale-close-must-revalidate",
                "stale-close-no-cache",
                "stale-close-proxy-revalidate",
                "stale-close-s-maxage=2",
            ],
            "The package wants the origin's answer although the origin gives none. The current suite wants any answer \
             that is not the stored one.",
        ),
        (
            &["304-etag-update-response-ETag"],
            "A 304 with another strong entity tag must not update the stored response (RFC 9111, section 4.3.4). The \
             current suite asks, and requires nothing.",
        ),
        (
            &["304-etag-update-response-Content-MD5"],
            "The package wants a 304 to leave Content-MD5. RFC 9111, section 3.2, has no such exception.",
        ),
        (
            &["ccreq-no-cache-etag"],
            "The package's entity tag has no quotes, so it is not valid.",
        ),
        (
            &["freshness-expires-32bit", "freshness-expires-far-future"],
            "The package's dates have no comma, so they are invalid.",
        ),
        (
            &[
                "freshness-expires-invalid-1-digit-hour",
                "freshness-expires-invalid-2-digit-year",
                "freshness-expires-invalid-aest",
                "freshness-expires-invalid-date-dashes",
                "freshness-expires-invalid-multiple-lines",
                "freshness-expires-invalid-multiple-spaces",
                "freshness-expires-invalid-no-comma",
                "freshness-expires-invalid-time-periods",
                "freshness-expires-invalid-utc",
            ],
            "The package asks whether an invalid date is understood. It counts as past (RFC 9111, section 5.3), as the \
             current suite requires.",
        ),
    ];
    [own, NO].concat()
}
