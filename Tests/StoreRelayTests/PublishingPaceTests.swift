import Testing

@testable import StoreRelay

/// The rests of a publisher beside a writer that commits all the time.
@Suite struct PublishingPaceTests {
    @Test func aLoneCommitIsFollowedByAShortRest() {
        for work in [Duration.zero, .milliseconds(1), .seconds(10)] {
            #expect(PublishingPace.rest(afterWorking: work, busyFor: .milliseconds(20)) == .milliseconds(5))
        }
    }

    @Test func restsGrowWithTheWorkOfABusyPublisherUpToALimit() {
        let rests = [0, 1, 2, 10, 1000].map {
            PublishingPace.rest(afterWorking: .milliseconds($0), busyFor: .seconds(1))
        }
        #expect(rests.first == .milliseconds(5))
        #expect(rests == rests.sorted() && rests[2] > rests[1])
        #expect(rests.last == .milliseconds(50))
    }
}
