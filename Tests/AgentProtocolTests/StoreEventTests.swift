import AgentProtocol
import Foundation
import TestSupport
import Testing

/// Events as lines of the wire.
@Suite struct StoreEventTests {
    private static let store = Array("group.example/Notes.sqlite".utf8)

    private static let events: [StoreEvent] = [
        .change(.unknown), .change(ChangedTables([], isComplete: true)),
        .change(ChangedTables(["note", "\"\\\n\u{7F}é"], isComplete: true)),
        .change(ChangedTables(["note"], isComplete: false)),
        .branchChange(.unknown, pid: 7), .branchChange(ChangedTables(["note"], isComplete: true), pid: 8),
        .relocating(waitingFor: []),
        .relocating(waitingFor: [
            .init(pid: 7, program: "notes"), .init(pid: 0, program: "é \"", isElsewhere: true),
        ]),
        .progress(StoreProgress(.relocating, fraction: 0, activity: "copying")),
        .progress(StoreProgress(.migrating, fraction: 0.125, activity: "")),
        .progress(StoreProgress(.migrating, fraction: 1, activity: "saving")),
        .relocated(from: Array("/a".utf8), to: [0x2F, 0xFF]), .relocated(from: [], to: Array("/b c".utf8)),
        .migrated(fromModel: nil, toModel: "Notes 2"), .migrated(fromModel: "Notes", toModel: ""),
        .abandoned(outcome: "busy", message: "in use\nby \"sh\""),
        .hazard(
            HazardDescription(
                code: "orphaned_log", holder: .init(pid: 7, program: "notes", isElsewhere: true), path: [0x2F, 0xFF],
                inode: .max, expectedInode: 3, message: "lost", hint: "cp")),
        .hazardOver(
            HazardDescription(
                code: "two_names", holder: .init(pid: 7, program: "notes"), path: [], inode: 4, expectedInode: nil,
                message: "", hint: "")),
        .hazard(
            HazardDescription(
                code: "hidden_writers", isWarning: true, holder: .init(pid: 0, program: "?"), path: [0x2F], inode: 4,
                expectedInode: 4, message: "nfs", hint: "move")),
        .reset(.subscribed), .reset(.lagged), .reset(.epoch), .reset(.overflow), .reset(.replaced), .reset(.appeared),
        .reset(.vanished), .reset(.unreadable), .reset(.historyTrimmed), .reset(.historyGap), .reset(.migrated),
        .reset(.unconfigured), .reset(.init(rawValue: "reason_of_a_later_agent")),
    ]

    /// Each kind of event is among the tested ones: a new case makes this switch incomplete.
    private static func kind(_ event: StoreEvent) -> Int {
        switch event {
        case .change: 0
        case .relocating: 1
        case .progress: 2
        case .relocated: 3
        case .migrated: 4
        case .abandoned: 5
        case .hazard: 6
        case .hazardOver: 7
        case .reset: 8
        case .branchChange: 9
        }
    }

    @Test func decodesEveryEventThatItEncodes() throws {
        #expect(Set(Self.events.map(Self.kind)) == Set(0...9))
        for event in Self.events {
            let line = WireLine.bytes(event.json(store: Self.store, token: "e-1"))
            guard case .event(let type, let object) = try AgentMessage(parsing: line.dropLast()) else {
                throw Unexpected("\(event) is no event")
            }
            #expect(type == event.type && object.path("store") == Self.store && object.string("token") == "e-1")
            #expect(StoreEvent(type: type, object) == event)
        }
    }

    @Test func decodesTheLineOfAPublication() throws {
        let address = try #require(StoreAddress(bytes: Self.store))
        var encoder = ChangeLine(address, epoch: "e")
        for case .change(let tables) in Self.events {
            let encoded = encoder.bytes(tables, number: 1)
            let line = try #require(encoded)
            guard case .event(let type, let object) = try AgentMessage(parsing: line.dropLast()) else {
                throw Unexpected("no event")
            }
            #expect(StoreEvent(type: type, object) == .change(tables) && object.store == address)
        }
    }

    @Test func sendsRowsWithAChange() {
        let row: JSONObject = ["table": "note", "key": 1]
        let object = StoreEvent.change(.unknown).json(store: Self.store, token: "e-1", rows: [row])
        #expect(object.objects("rows") == [row])
        #expect(StoreEvent(type: "change", object) == .change(.unknown))
        #expect(StoreEvent.change(.unknown).json(store: Self.store, token: "e-1")["rows"] == nil)
    }

    @Test func decodesNoBookmarkAndNoLaterEvent() throws {
        let bookmark = StoreEvent.bookmark(store: try #require(StoreAddress(bytes: Self.store)), token: "e-1")
        #expect(StoreEvent(type: bookmark.string("type") ?? "", bookmark) == nil)
        #expect(StoreEvent(type: "split", ["store": "g/a", "token": "e-1"]) == nil)
    }

    /// A line that was too long lacks its longest members.
    @Test func decodesAShortenedLine() throws {
        let event = StoreEvent.abandoned(outcome: "busy", message: String(repeating: "x", count: 40_000))
        let shortened = WireLine.shortened(event.json(store: Self.store, token: "e-1"))
        #expect(StoreEvent(type: "abandoned", shortened) == .abandoned(outcome: "busy", message: ""))
        for (type, event) in [
            ("change", StoreEvent.change(.unknown)), ("relocated", .relocated(from: [], to: [])),
            ("migrated", .migrated(fromModel: nil, toModel: "")), ("relocating", .relocating(waitingFor: [])),
        ] {
            #expect(StoreEvent(type: type, [:]) == event)
        }
    }

    /// The events in the protocol's document: each is decoded, and encoded to the same members.
    @Test func decodesEveryExampleOfTheDocument() throws {
        let document = URL(filePath: #filePath).deletingLastPathComponent()
            .appending(path: "../../Documentation/WireProtocol.md")
        let text = try String(contentsOf: document, encoding: .utf8)
            .replacing("\"<fraction>\"", with: "0.5").replacing("\"<pid>\"", with: "7")
        var types: Set<String> = []
        for line in text.split(separator: "\n") {
            guard let match = line.wholeMatch(of: /S[0-9]?(?:\*[0-9]+)? (\{.+\})/),
                case .object(let object) = try JSONValue(parsing: match.1.utf8), object["id"] == nil,
                let type = object.string("type"), let token = object.string("token")
            else { continue }
            types.insert(type)
            if type == "bookmark" { continue }
            let event = try #require(StoreEvent(type: type, object), "\(line)")
            let rows = object["rows"].map { _ in object.objects("rows") }
            #expect(event.json(store: object.path("store") ?? [], token: token, rows: rows) == object)
        }
        #expect(types == Set(Self.events.map(\.type)).union(["bookmark"]))
    }
}
