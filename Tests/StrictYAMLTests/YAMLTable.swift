/// Documents, and what they are read as: `{key: value}`, `[element]`, scalars in their quotation marks or between `|`
/// or `>`; or the error. Yams 6.2 read them the same, except where a comment says what it did.
enum YAMLTable {
    typealias Row = (document: String, expected: String)

    static let all: [Row] =
        words + quotation + blockScalars + plainScalars + structure + whitespace + unicode + duplicateKeys + anchors
        + documents

    /// Words, numbers and null are text; only the reader of a place knows its type.
    private static let words: [Row] = [
        ("a: b\n", "{a: b}"),
        ("[no, yes, on, off, true, False, y]\n", "[no, yes, on, off, true, False, y]"),
        ("[~, null, Null, NULL, '~', \"null\", '', \"\"]\n", "[~, null, Null, NULL, '~', \"null\", '', \"\"]"),
        (
            "[0x1f, 0o17, 017, +1, -1, 1_000, 1e3, 1.0, .inf, .NaN, 190:20:30]\n",
            "[0x1f, 0o17, 017, +1, -1, 1_000, 1e3, 1.0, .inf, .NaN, 190:20:30]"
        ),
        ("[2001-12-14, 2001-12-14t21:59:43.10-05:00]\n", "[2001-12-14, 2001-12-14t21:59:43.10-05:00]"),
        ("- \n-\n- a\n", "[, , a]"),
        ("a:\nb: ~\n", "{a: , b: ~}"),
        ("<<: {a: 1}\n", "{<<: {a: 1}}"),
        ("= : a\n", "{=: a}"),
        ("{a, b: , : c}\n", "line 1: did not find expected node content"),
    ]

    /// Quotation marks.
    private static let quotation: [Row] = [
        ("'it''s'\n", "'it's'"),
        ("\"\\t\\\"\\\\\\u00e9\\x41\\U0001F600\\e\\0\"\n", "\"\\t\"\\\\éA😀\\e\\0\""),
        ("\"a\\\n   b\"\n", "\"ab\""),
        ("\"a\n\n  b  c\"\n", "\"a\\nb  c\""),
        ("'a\n  b'\n", "'a b'"),
        ("'a: b # c'\n", "'a: b # c'"),
        ("a: 'b' # c\n", "{a: 'b'}"),
        ("a: b# c\n", "{a: b# c}"),
        ("\"\\ud83d\\ude00\"\n", "line 1: found invalid Unicode character escape code"),
        ("\"\\xZZ\"\n", "line 1: did not find expected hexdecimal number"),
        ("\"\\q\"\n", "line 1: found unknown escape character"),
        ("'a\n", "line 2: found unexpected end of stream"),
        ("'a' b\n", "line 1: did not find expected <document start>"),
        ("it's\n", "it's"),
        ("a 'b' \"c\"\n", "a 'b' \"c\""),
        ("[a'b, \"c\"d]\n", "line 1: did not find expected ',' or ']'"),
    ]

    /// Block scalars.
    private static let blockScalars: [Row] = [
        ("a: |\n  b\n   c\n\n  d\n\n", "{a: |b\\n c\\n\\nd\\n|}"),
        ("a: |-\n  b\n", "{a: |b|}"),
        ("a: |+\n  b\n\n", "{a: |b\\n\\n|}"),
        ("a: >\n  b\n  c\n\n  d\n   e\n", "{a: >b c\\nd\\n e\\n>}"),
        ("a: >-\n  b\n  c\n", "{a: >b c>}"),
        ("a: |2\n    b\n", "{a: |  b\\n|}"),
        ("a: |\n\tb\n", "line 2: found a tab character where an indentation space is expected"),
        ("a: | # c\n  b # c\n", "{a: |b # c\\n|}"),
        ("a: |x\n  b\n", "line 1: did not find expected comment or line break"),
        ("- |\n - a\n", "[|- a\\n|]"),
        ("a: |\nb: c\n", "{a: ||, b: c}"),
    ]

    /// Plain scalars.
    private static let plainScalars: [Row] = [
        ("a b\n  c\n", "a b c"),
        ("a: b\n  c\nd: e\n", "{a: b c, d: e}"),
        ("a: b: c\n", "line 1: mapping values are not allowed in this context"),
        ("a:b\n", "a:b"),
        ("a: -b\n", "{a: -b}"),
        ("a: - b\n", "line 1: block sequence entries are not allowed in this context"),
        ("- - a\n  - b\n- c\n", "[[a, b], c]"),
        ("a: @b\n", "line 1: found character that cannot start any token"),
        ("a: `b\n", "line 1: found character that cannot start any token"),
        ("a: %b\n", "line 1: found character that cannot start any token"),
        ("a: ?b\n", "{a: ?b}"),
        ("a: b?c*d&e!f|g>h\n", "{a: b?c*d&e!f|g>h}"),
        ("[a b, c d]\n", "[a b, c d]"),
        ("{a: b c, d: e}\n", "{a: b c, d: e}"),
        ("a: b]c}d,e\n", "{a: b]c}d,e}"),
        ("[a]b\n", "line 1: did not find expected <document start>"),
        ("$source.first + 1\n", "$source.first + 1"),
        ("kind == \"human\"\n", "kind == \"human\""),
        ("FUNCTION($m, \"x\", $s.@count)\n", "FUNCTION($m, \"x\", $s.@count)"),
        ("http://a/b#c\n", "http://a/b#c"),
    ]

    /// Structure.
    private static let structure: [Row] = [
        ("a:\n  b:\n    - c\n    - d: e\n      f: g\n  h: i\n", "{a: {b: [c, {d: e, f: g}], h: i}}"),
        ("a:\n- b\n- c\n", "{a: [b, c]}"),
        ("- a: b\n  c: d\n-\n  e: f\n", "[{a: b, c: d}, {e: f}]"),
        ("a: {b: [c, {d: e}], f: }\n", "{a: {b: [c, {d: e}], f: }}"),
        ("[a, b, ]\n", "[a, b]"),
        ("[a,, b]\n", "line 1: did not find expected node content"),
        ("{a: b,\n c: d}\n", "{a: b, c: d}"),
        ("[\na\n,\nb\n]\n", "[a, b]"),
        ("[a: b, c]\n", "[{a: b}, c]"),
        ("{a: b: c}\n", "line 1: did not find expected ',' or '}'"),
        ("a:\n   b: c\n  d: e\n", "line 3: did not find expected key"),
        ("a:\n b: c\n d: e\n", "{a: {b: c, d: e}}"),
        ("a: b\n c: d\n", "line 2: mapping values are not allowed in this context"),
        (" a: b\n c: d\n", "{a: b, c: d}"),
        ("a: b\n- c\n", "line 2: did not find expected key"),
        ("- a\nb: c\n", "line 2: did not find expected '-' indicator"),
        ("[a\n", "line 2: did not find expected ',' or ']'"),
        ("{a: b\n", "line 2: did not find expected ',' or '}'"),
        ("a: [b\nc: d\n", "line 2: did not find expected ',' or ']'"),
        ("]\n", "line 1: did not find expected node content"),
        ("? a\n: b\n", "{a: b}"),
        ("? a\nc: d\n", "{a: , c: d}"),
        // Yams: accepted
        ("? [a]\n: b\n", "line 1: a key that is not a plain word"),
        // Yams: accepted
        ("{[a]: b}\n", "line 1: a key that is not a plain word"),
        // Yams: accepted
        ("{{a: b}: c}\n", "line 1: a key that is not a plain word"),
        // Yams: accepted
        ("? ? a\n", "line 1: a key that is not a plain word"),
        // Yams, whose libyaml is newer: [{: }]
        ("[?]\n", "line 2: did not find expected ',' or ']'"),
        ("? |\n  a\n: b\n", "{a\\n: b}"),
    ]

    /// Comments, blank lines, tabs and line ends.
    private static let whitespace: [Row] = [
        ("", "nothing"),
        ("\n", "nothing"),
        ("# a\n", "nothing"),
        ("# a\n\na: b # c\n#d\n  # e\nf: g\n", "{a: b, f: g}"),
        ("a: b\t# c\n", "{a: b}"),
        ("a:\tb\n", "{a: b}"),
        ("a: b \n", "{a: b}"),
        ("a:\n\tb\n", "line 2: found character that cannot start any token"),
        ("\ta: b\n", "line 1: found character that cannot start any token"),
        ("a:\n  - b\n\t- c\n", "line 3: found a tab character that violates indentation"),
        ("-\ta\n", "line 1: found character that cannot start any token"),
        ("a: b\r\nc: d\r\n", "{a: b, c: d}"),
        ("a: b\rc: d\r", "{a: b, c: d}"),
        ("a: |\r\n  b\r\n  c\r\n", "{a: |b\\nc\\n|}"),
        ("\"a\r\n b\"\r\n", "\"a b\""),
        ("a: b\u{85}c: d\n", "{a: b, c: d}"),
        ("a: b\u{2028}c: d\n", "{a: b, c: d}"),
        ("a: b", "{a: b}"),
    ]

    /// Unicode and control characters.
    private static let unicode: [Row] = [
        ("é: 日本 😀\n", "{é: 日本 😀}"),
        // Yams: refused
        ("\u{FEFF}a: b\nc: d\n", "{a: b, c: d}"),
        // Yams: no byte order mark
        ("a: \"\\uFEFF\"\n", "{a: \"\\uFEFF\"}"),
        ("\u{FEFF}", "nothing"),
        ("a: \u{0}\n", "line 1: control characters are not allowed"),
        ("a: b\nc: \u{1}\n", "line 2: control characters are not allowed"),
        ("a: \u{7F}\n", "line 1: control characters are not allowed"),
        ("a: \u{FFFE}\n", "line 1: control characters are not allowed"),
        ("\u{200B}: \u{A0}\n", "{\u{200B}: \u{A0}}"),
        ("a: \u{10FFFF}\n", "{a: \u{10FFFF}}"),
    ]

    /// Duplicate keys.
    private static let duplicateKeys: [Row] = [
        ("a: b\nc: d\na: e\n", "line 1: duplicate key a"),
        ("a: 1\n'a': 2\n", "line 1: duplicate key a"),
        // Yams: accepted
        ("{1: a, '1': b}\n", "line 1: duplicate key 1"),
        // Yams: accepted
        ("{~: a, '~': b}\n", "line 1: duplicate key ~"),
        ("{é: a, e\u{301}: b}\n", "line 1: duplicate key é"),
        ("a: {b: c, b: d}\na: e\n", "line 1: duplicate key b"),
        ("{c: 1, b: 1, b: 2, c: 2, c: 3}\n", "line 1: duplicate key b, c"),
        ("{<<: a, <<: b}\n", "line 1: duplicate key <<"),
        ("{: a, '': b}\n", "line 1: did not find expected node content"),
    ]

    /// Anchors, aliases and tags.
    private static let anchors: [Row] = [
        ("a: &x b\nc: *x\n", "{a: b, c: b}"),
        ("a: &x {b: [c, d]}\ne: *x\n", "{a: {b: [c, d]}, e: {b: [c, d]}}"),
        ("&x a: b\n*x : c\n", "line 1: duplicate key a"),
        ("a: *x\n", "line 1: found undefined alias"),
        ("a: &x [*x]\n", "line 1: found undefined alias"),
        ("a: &x b\nc: &x d\ne: *x\n", "{a: b, c: d, e: d}"),
        ("a: &x\nb: *x\n", "{a: , b: }"),
        ("a: !!str 1\nb: !!int c\nd: !e f\n", "{a: 1, b: c, d: f}"),
        ("!!map {a: !!seq [b]}\n", "{a: [b]}"),
        ("a: !<x:y> b\n", "{a: b}"),
        ("a: !!null b\n", "{a: b}"),
        ("a: !!str\n", "{a: }"),
        ("a: !b!c d\n", "line 1: found undefined tag handle"),
        ("%TAG !b! x:\n---\na: !b!c d\n", "{a: d}"),
        ("&x {a: b}\n", "{a: b}"),
    ]

    /// Documents and directives.
    private static let documents: [Row] = [
        ("---\na: b\n", "{a: b}"),
        ("---\na: b\n...\n", "{a: b}"),
        ("a: b\n---\nc: d\n", "line 2: but found another document"),
        ("a: b\n---\n", "line 2: but found another document"),
        ("a: b\n...\nc: d\n", "line 3: did not find expected <document start>"),
        ("---\n", ""),
        ("...\n", "line 1: did not find expected node content"),
        ("--- a\n", "a"),
        ("--- |\n a\n", "|a\\n|"),
        ("%YAML 1.1\n---\na: b\n", "{a: b}"),
        ("%YAML 1.2\n---\na: b\n", "{a: b}"),
        ("%YAML 2.0\n---\na: b\n", "line 1: found incompatible YAML document"),
        ("%A b\n---\na: b\n", "line 1: found unknown directive name"),
        ("%YAML 1.1\na: b\n", "line 2: did not find expected <document start>"),
        ("a: b\n...\n...\n", "{a: b}"),
    ]
}
