import Testing

@testable import AppRelocation

/// Which of the processes that this one has started hold a file.
@Suite struct HoldingChildrenTests {
    @Test func aChildCountsOnceItsOwnProgramHasTheFile() {
        var children = HoldingChildren()
        #expect(children.counted(of: [1, 2], stillForks: [1, 2]) == nil)
        // The second one has closed the file with the beginning of its program.
        #expect(children.counted(of: [1], stillForks: []) == nil)
        #expect(children.counted(of: [1], stillForks: []) == [1])
    }

    /// It had the file when it was looked at, and perhaps only until its program began.
    @Test func aChildThatHasJustBegunIsLookedAtAgain() {
        var children = HoldingChildren()
        #expect(children.counted(of: [1], stillForks: []) == nil)
        #expect(children.counted(of: [], stillForks: []) == [])
    }

    @Test func childrenThatAreStartedMeanwhileNeitherCountNorDelay() {
        var children = HoldingChildren()
        #expect(children.counted(of: [1], stillForks: [1]) == nil)
        #expect(children.counted(of: [2, 3], stillForks: [2, 3]) == [])
    }

    @Test func aForkThatStaysIsAwaited() {
        var children = HoldingChildren()
        for _ in 0..<3 { #expect(children.counted(of: [1], stillForks: [1]) == nil) }
    }

    @Test func withoutChildrenOneLookIsEnough() {
        var children = HoldingChildren()
        #expect(children.counted(of: [], stillForks: []) == [])
    }
}
