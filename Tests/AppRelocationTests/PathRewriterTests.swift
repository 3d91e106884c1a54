import GroupContainers
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

@testable import AppRelocation

/// The change of paths in texts, without a store.
@Suite struct PathRewriterTests {
    private func rewritten(_ text: String, _ old: FilePath = "/home/me/.app", _ new: FilePath = "/srv/a pp") throws
        -> String?
    {
        let rewriter = PathRewriter([try #require(PathRewrite(old: old, new: new))])
        return applied(rewriter, Array(text.utf8)).map { String(decoding: $0, as: UTF8.self) }
    }

    private func applied(_ rewriter: PathRewriter, _ value: [UInt8]) -> [UInt8]? {
        rewriter.changes(value).applied(to: value)
    }

    @Test(arguments: [
        ("/home/me/.app", "/srv/a pp"),
        ("/home/me/.app/", "/srv/a pp/"),
        ("/home/me/.app/x/y%20z", "/srv/a pp/x/y%20z"),
        ("/home/me/.app/x/../y", "/srv/a pp/x/../y"),
        ("file:///home/me/.app/x?../../y", "file:///srv/a%20pp/x?../../y"),
        ("file:///home/me/.app", "file:///srv/a%20pp"),
        ("file:///home/me/%2Eapp/x%20y?q=/home/me/.app#f", "file:///srv/a%20pp/x%20y?q=/home/me/.app#f"),
        ("file://localhost/home/me/.app/x", "file://localhost/srv/a%20pp/x"),
        ("file:/home/me/.app/x", "file:/srv/a%20pp/x"),
        (#"{"p": "/home/me/.app/x", "n": 1.50}"#, #"{"p": "/srv/a pp/x", "n": 1.50}"#),
        (#" ["\/home\/me\/.app\/x",true]"#, #" ["\/srv\/a pp\/x",true]"#),
        (#"["/home/m\u0065/.app/\u00e9"]"#, #"["/srv/a pp/\u00e9"]"#),
        (
            #"{"a":[{"b":"file:///home/me/.app/1"}],"c":"/home/me/.app"}"#,
            #"{"a":[{"b":"file:///srv/a%20pp/1"}],"c":"/srv/a pp"}"#
        ),
        (#"{"j":"{\"p\":\"/home/me/.app\"}"}"#, #"{"j":"{\"p\":\"/srv/a pp\"}"}"#),
        (#""/home/me/.app/x""#, #""/srv/a pp/x""#),
        (#" "file:///home/me/%2Eapp/x" "#, #" "file:///srv/a%20pp/x" "#),
        (#""\"/home/me/.app/x\"""#, #""\"/srv/a pp/x\"""#),
        // Behind the path, each byte stays.
        (#"["\u002Fhome/me\/.app/\u00E9\u0041\ud83D\uDE00"]"#, #"["\/srv\/a pp/\u00E9\u0041\ud83D\uDE00"]"#),
        (#"{"d":"\ud83d","e":"\/home/me/.app/\uDE00\ud83d\n"}"#, #"{"d":"\ud83d","e":"\/srv\/a pp/\uDE00\ud83d\n"}"#),
        (#"{"d":"\ud83d\ud83d\ude00","e":"/home/me/.app"}"#, #"{"d":"\ud83d\ud83d\ude00","e":"/srv/a pp"}"#),
        (
            #"["{\"d\":\"\\ud83d\",\"e\":\"/home/me/.app/\ud83d\"}"]"#,
            #"["{\"d\":\"\\ud83d\",\"e\":\"/srv/a pp/\ud83d\"}"]"#
        ),
    ])
    func changesWholeComponents(_ old: String, _ new: String) throws { #expect(try rewritten(old) == new) }

    @Test(arguments: [
        "/home/me/.apps", "/home/me/.app2/x", "/home/me", "home/me/.app", "x/home/me/.app", " /home/me/.app",
        "/home/me/.app/../x", "/home/me/.app/./x/..//../y", "file:///home/me/.app/%2E%2e/x",
        "file:///home/me/.apps", "file:///home/me/%2Eapp%2Fx", "http:///home/me/.app", "file://host/home/me/.app",
        #"{"/home/me/.app": 1}"#, #"{"p": "/home/me/.app""#, #"[note] "/home/me/.app""#, #"["/home/me/.app",]"#,
        #"["see /home/me/.app"]"#, #""/home/me/.apps""#, #""/home/me/.app" and more"#, #""/home/me/.app"#,
        #""\ud83d/home/me/.app""#, #"["\u+02f", "/home/me/.app"]"#, #"["\ud83d\u12", "/home/me/.app"]"#, "", "/",
    ])
    func leavesEverythingElse(_ text: String) throws { #expect(try rewritten(text) == nil) }

    @Test func takesForJSONWhatSQLiteTakes() throws {
        let values = [
            "0", "-0", "01", "-", "-01", "1.", ".5", "1.5", "1.e1", "1e", "1E+2", "1e-", "1e05", "+1", "0x1", "1 2",
            "tru", "true", "truefalse", "nul", "null", "[]", "[", "[}", "{]", #"{"a"}"#, "{1:2}", #"{"a":1,}"#,
            "[1,]", "[,1]", #"{"a":1 "b":2}"#, "[1 2]", #""\u00zz""#, #""\u-000""#, #""\x41""#, "\"\t\"",
            #"{"a":{"b":[1]}}"#,
        ]
        let texts = values.map { "[\"/home/me/.app\", \($0)]" }
        let script = texts.map { "SELECT json_valid('\($0)');" }.joined()
        let answers = try run("sqlite3", ["-batch", "-init", "/dev/null", ":memory:", Word(script)])
        #expect(try answers.output == texts.map { try rewritten($0) == nil ? "0\n" : "1\n" }.joined())
    }

    @Test func changesAnyNestingAndNamesWhatItDoesNotReach() throws {
        let (open, end) = (String(repeating: "[", count: 5000), String(repeating: "]", count: 5000))
        #expect(try rewritten("\(open)\"/home/me/.app\"\(end)") == "\(open)\"/srv/a pp\"\(end)")
        let rewriter = PathRewriter([try #require(PathRewrite(old: "/o", new: "/new"))])
        // Escapes that grow by a sum, not by doubling: a text may be quoted any number of times.
        func quoted(_ text: String, _ count: Int) -> String {
            (0..<count).reduce(text) { text, _ in
                let escaped = text.replacing("\\", with: #"\u005c"#).replacing("\"", with: #"\u0022"#)
                return "\"\(escaped)\""
            }
        }
        for (count, isReached) in [(4, true), (33, true), (34, false)] {
            let text = Array(quoted("/o/x", count).utf8)
            let changes = rewriter.changes(text)
            #expect(changes.isTooDeep != isReached)
            #expect(changes.applied(to: text) == (isReached ? Array(quoted("/new/x", count).utf8) : nil))
        }
    }

    @Test func theLongestOldPathApplies() throws {
        let pairs = [("/a", "/1"), ("/a/b", "/2"), ("/a/b/c", "/3")]
        let rewriter = PathRewriter(pairs.compactMap { PathRewrite(old: FilePath($0), new: FilePath($1)) })
        let changed = ["/a/x", "/a/b/x", "/a/b/c", "/a/bc"].map { applied(rewriter, Array($0.utf8)) ?? [] }
        #expect(changed.map { String(decoding: $0, as: UTF8.self) } == ["/1/x", "/2/x", "/3", "/1/bc"])
    }

    @Test func keepsBytesThatAreNotUTF8() throws {
        let old = try #require(FilePath(bytes: [0x2F, 0xFF]))
        let rewriter = PathRewriter([try #require(PathRewrite(old: old, new: "/n"))])
        #expect(applied(rewriter, [0x2F, 0xFF, 0x2F, 0xFE]) == [0x2F, 0x6E, 0x2F, 0xFE])
        #expect(applied(rewriter, Array("file:///%FF/x".utf8)) == Array("file:///n/x".utf8))
        #expect(applied(rewriter, [0x2F, 0xFF, 0xFE]) == nil)
    }
}
