import GroupContainers
import LinuxSystem
import SystemPackage
import Testing

@testable import AppRelocation

/// The change of paths in texts, without a store.
@Suite struct PathRewriterTests {
    private func rewritten(_ text: String, _ old: FilePath = "/home/me/.app", _ new: FilePath = "/srv/a pp") throws
        -> String?
    {
        let rewriter = PathRewriter([try #require(PathRewrite(old: old, new: new))])
        return rewriter.rewritten(Array(text.utf8)).map { String(decoding: $0, as: UTF8.self) }
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

    @Test func theLongestOldPathApplies() throws {
        let pairs = [("/a", "/1"), ("/a/b", "/2"), ("/a/b/c", "/3")]
        let rewriter = PathRewriter(pairs.compactMap { PathRewrite(old: FilePath($0), new: FilePath($1)) })
        let changed = ["/a/x", "/a/b/x", "/a/b/c", "/a/bc"].map { rewriter.rewritten(Array($0.utf8)) ?? [] }
        #expect(changed.map { String(decoding: $0, as: UTF8.self) } == ["/1/x", "/2/x", "/3", "/1/bc"])
    }

    @Test func keepsBytesThatAreNotUTF8() throws {
        let old = try #require(FilePath(bytes: [0x2F, 0xFF]))
        let rewriter = PathRewriter([try #require(PathRewrite(old: old, new: "/n"))])
        #expect(rewriter.rewritten([0x2F, 0xFF, 0x2F, 0xFE]) == [0x2F, 0x6E, 0x2F, 0xFE])
        #expect(rewriter.rewritten(Array("file:///%FF/x".utf8)) == Array("file:///n/x".utf8))
        #expect(rewriter.rewritten([0x2F, 0xFF, 0xFE]) == nil)
    }
}
