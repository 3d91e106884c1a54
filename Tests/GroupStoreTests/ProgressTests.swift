import AgentProtocol
import Testing

@testable import GroupStore

/// Events that tell how far a relocation or migration is.
@Suite struct ProgressTests {
    @Test func deliversHowFarTheWorkIs() {
        for work in [StoreProgress.Work.relocating, .migrating] {
            let change = StoreChange(.progress(StoreProgress(work, fraction: 0.5, activity: "copying")), token: "t")
            guard case .progress(let progress, "t") = change else {
                Issue.record("\(change)")
                continue
            }
            #expect(progress.work.rawValue == work.rawValue)
            #expect(progress.fraction == 0.5 && progress.activity == "copying")
            #expect(!change.changesContent && change.token == "t")
        }
    }

    @Test func tellsProgressFromTheBeginningOfARelocation() {
        #expect(StoreChange(.relocating(waitingFor: []), token: "t") == .relocating(waitingFor: [], token: "t"))
    }

    @Test func asksForProgressOnlyIfWanted() throws {
        let store = try #require(StoreAddress(group: "group.example", name: Array("Notes.sqlite".utf8)))
        for wantsProgress in [true, false] {
            var operation = SubscribeOperation(store)
            operation.wantsProgress = wantsProgress
            let request = AgentRequest(id: 1, .subscribe(operation))
            #expect((request.json["progress"] == true) == wantsProgress)
        }
    }
}
