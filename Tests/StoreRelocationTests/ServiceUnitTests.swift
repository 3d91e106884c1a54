import Glibc
import LinuxSystem
import StoreRelocation
import SystemPackage
import TestSupport
import Testing

/// What a service's settings say about a new place of its files.
struct ServiceUnitTests {
    private func lines(
        _ settings: String, to place: FilePath, from directory: FilePath = "/var/lib/net", leavesLink: Bool = true
    ) -> [String]? {
        ServiceUnit(name: "net.service", texts: ["[Unit]\nProtectHome=no\n[Service]\n\(settings)\n"])
            .obstacle(from: directory, to: place, leavesLink: leavesLink)?.lines
    }

    @Test func aSandboxKeepsItsServiceOut() {
        let strict = "ProtectSystem=strict\nReadWritePaths=/var/lib/net"
        #expect(lines(strict, to: "/srv/net", leavesLink: false) == ["ReadWritePaths=-/srv/net"])
        // systemd follows the link that stands for the directory.
        #expect(lines(strict, to: "/srv/net") == nil)
        #expect(lines("ProtectSystem=strict\nReadWritePaths=/var/lib", to: "/srv/net") == ["ReadWritePaths=-/srv/net"])
        #expect(lines("ProtectSystem=full", to: "/srv/net") == nil)
        #expect(lines("ProtectSystem=full", to: "/etc/net") == ["ReadWritePaths=-/etc/net"])
        #expect(lines("ProtectHome=yes", to: "/home/net") == ["ProtectHome=tmpfs", "BindPaths=-/home/net"])
        #expect(lines("ProtectHome=yes\nReadWritePaths=/home/net", to: "/home/net") != nil)
        #expect(lines("ProtectHome=read-only", to: "/home/net") == ["ReadWritePaths=-/home/net"])
        #expect(lines("PrivateTmp=yes", to: "/var/tmp/net") == ["BindPaths=-/var/tmp/net"])
        #expect(lines("InaccessiblePaths=/srv", to: "/srv/net") == [])
        #expect(lines("", to: "/srv/net") == nil)
    }

    @Test func itsOwnDirectoryMayNotBecomeALink() {
        #expect(lines("StateDirectory=net", to: "/srv/net") == ["StateDirectory="])
        #expect(lines("StateDirectory=net", to: "/srv/net", leavesLink: false) == nil)
        #expect(
            lines("ProtectSystem=strict\nStateDirectory=net other", to: "/srv/net")
                == ["StateDirectory=", "StateDirectory=other", "ReadWritePaths=-/srv/net"])
    }

    @Test func readsListsQuotesSpecifiersAndDropIns() {
        let strict = "ProtectSystem=strict\nReadWritePaths=/x\nReadWritePaths=\nReadWritePaths=-%S/net \"/srv/a b\""
        #expect(lines(strict, to: "/srv/a b/net", leavesLink: false) == nil)
        #expect(lines(strict, to: "/srv/a  b", leavesLink: false) == [#"ReadWritePaths="-/srv/a  b""#])
        #expect(lines(strict, to: "/srv/50%", leavesLink: false) == ["ReadWritePaths=-/srv/50%%"])
        // A service that can't write to the old place doesn't use it so.
        #expect(lines("ProtectSystem=strict\nReadWritePaths=/x", to: "/srv/net") == nil)
        #expect(lines("RootDirectory=/chroot\nProtectSystem=strict\nReadWritePaths=/var/lib/net", to: "/srv/n") == nil)
    }

    @Test func findsTheUnitsAndTheirDropIns() throws {
        let root = try TemporaryDirectory()
        let script = """
            cd "$1" && mkdir -p etc/systemd/system/net.service.d usr/lib/systemd/system
            printf '[Service]\nUser=0\nProtectSystem=strict\nStateDirectory=net\n' >usr/lib/systemd/system/net.service
            cp usr/lib/systemd/system/net.service usr/lib/systemd/system/masked.service
            ln -s /dev/null etc/systemd/system/masked.service
            printf '[Service]\nUser=0\n' >usr/lib/systemd/system/plain.service
            printf '[Service]\nProtectSystem=strict\nStateDirectory="quo"ted\n' >etc/systemd/system/quoted.service
            printf '[Service]\nUser=7\nProtectSystem=strict\nReadWritePaths=/data\n' >etc/systemd/system/users.service
            printf '[Service]\nProtectHome=yes\nStateDirectory=wide\n' >etc/systemd/system/wide.service
            mkdir etc/systemd/system/plain.service.d
            printf '[Service]\nProtectSystem = strict\nStateDirectory = plain\n' >etc/systemd/system/plain.service.d/a.conf
            """
        try run("sh", ["-c", Word(script), "sh", Word(root.path)])
        func refusal(
            of directory: FilePath = "/var/lib/net", to place: FilePath = "/srv/net", owner: uid_t = 0
        ) -> RelocationFailure? {
            do throws(RelocationFailure) {
                try ServiceUnit.check(owner: owner, from: directory, to: place, leavesLink: true, root: root.path)
                return nil
            } catch { return error }
        }
        let failure = try #require(refusal())
        #expect(failure.code == "service_locked_out" && failure.message.hasPrefix("net.service"), "\(failure)")
        // Services that name the directory in other words than its own, and one that only its owner's may use.
        #expect(refusal(of: "/var/lib/quoted")?.message.hasPrefix("quoted.service") == true)
        #expect(refusal(of: "/var", to: "/home/var")?.message.hasPrefix("wide.service") == true)
        #expect(refusal(of: "/data/of/user", owner: 7)?.message.hasPrefix("users.service") == true)
        #expect(refusal(of: "/data/of/user") == nil && refusal(of: "/data/of/user", owner: 8) == nil)
        // A service that only a drop-in restricts.
        #expect(refusal(of: "/var/lib/plain")?.message.hasPrefix("plain.service") == true)
        // The remedy runs as printed, as far as it can here.
        let command = failure.remedy.replacing("allow it: ", with: "")
            .replacing("/etc/", with: "\(root.path)/etc/").replacing(" && systemctl daemon-reload", with: "")
        #expect(try run("sh", ["-c", Word(command)]).status == 0)
        #expect(refusal() == nil)
    }
}
