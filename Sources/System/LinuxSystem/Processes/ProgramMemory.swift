import CLinux

/// The memory of this process that comes from its program.
package enum ProgramMemory {
    /// Gives back free heap and the pages of code that nothing uses any more. Call it once, when the start of a program
    /// that then waits for long is done. The code that later work needs is mapped again as that work comes to it, which
    /// costs some tenths of a millisecond in all.
    package static func releaseUnused() { gs_release_memory() }
}
