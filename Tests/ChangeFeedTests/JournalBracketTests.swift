import Testing

@testable import ChangeFeed

/// Classification of writes to a database in rollback mode by the order of events.
@Suite struct JournalBracketTests {
    /// Replays events. `c` and `m`: the journal is created, modified; `r`: removed; `w`: the database is written; `x`:
    /// closed by a writer; `s`, `S`: all is settled, without and with a journal file; `h`: a hot journal is seen; `l`:
    /// events were lost.
    private func isWrittenOutside(_ events: String) -> Bool { bracket(after: events).wasWrittenOutside }

    private func bracket(after events: String) -> JournalBracket {
        var bracket = JournalBracket()
        for event in events {
            switch event {
            case "c": bracket.record(.journal, created: true, modified: false, removed: false, closed: false)
            case "m": bracket.record(.journal, created: false, modified: true, removed: false, closed: false)
            case "r": bracket.record(.journal, created: false, modified: false, removed: true, closed: false)
            case "w": bracket.record(.database, created: false, modified: true, removed: false, closed: false)
            case "x": bracket.record(.database, created: false, modified: false, removed: false, closed: true)
            case "l": bracket.recordLostEvents()
            case "h": bracket.recordHotJournal()
            default: bracket.settle(hasJournal: event == "S")
            }
        }
        return bracket
    }

    @Test(arguments: [
        // DELETE, also settled before all events have arrived; a rolled back one; a recovery
        "", "cmwmr", "cmwmrx", "cs" + "mwr", "cmwrcmwr", "cmrx", "hwr", "cmwhwr",
        // PERSIST and TRUNCATE
        "cmw" + "lh" + "wr", "mwm", "mwmwm", "mwmS" + "mwm", "cmwmS" + "mwm", "x", "mmx",
    ])
    func classifiesATransactionAsInside(_ events: String) { #expect(!isWrittenOutside(events)) }

    @Test(arguments: [
        "w", "wx", "cmwrw", "wxcmwr", "cmwr" + "wx" + "cmwr", "cmwmS" + "wx", "mmS" + "wx", "mwm" + "wx" + "mwm",
        "hwrw", "cmw" + "l" + "wx", "mw" + "l" + "wx", "w" + "l",
    ])
    func classifiesACopyAsOutside(_ events: String) { #expect(isWrittenOutside(events)) }

    @Test(arguments: ["x", "xx", "wsx", "cmwr" + "s" + "x"])
    func noticesACloseWithoutAWrite(_ events: String) { #expect(bracket(after: events).wasClosedUnwritten) }

    @Test(arguments: ["", "wx", "xw", "cx", "cmwrx", "xs"])
    func ignoresACloseAfterAWrite(_ events: String) { #expect(!bracket(after: events).wasClosedUnwritten) }
}
