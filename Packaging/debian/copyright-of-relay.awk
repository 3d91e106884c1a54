# Prints `copyright` as it applies to the relay: the same sources and Swift packages except xxHash and swift-log, and libnats
# beside them.
BEGIN { RS = ""; ORS = "\n\n" }
/^Format:/ {
    sub(/The program contains/, "groupstore-relay contains")
    sub(/expat, libyaml, zlib/, "OpenSSL, protobuf-c, expat, zlib")
    sub(/ It is built without libinotifytools, and so contains/, " It contains")
}
/^Files: usr\/bin\/groupstore\n/ {
    sub(/usr\/bin\/groupstore/, "usr/bin/groupstore-relay")
    gsub(/ [-0-9]* [^\n]*\((swift-log 1.16|the locks of swift-log|xxHash)\)\n/, "")
    sub(/ and Apache-2.0 and/, " and")
    sub(/ and BSD-2-clause/, "")
    sub(/ Apache-2.0, without an exception: [^\n]*/, "")
    sub(/ BSD-2-clause: xxHash\./, "")
    sub(/\n \.\n swift-log's NOTICE\.txt:.*/, "")
}
/^License: BSD-2-clause\n/ { next }
# Before the first licence.
/^License: Expat\n/ {
    print "Files: usr/lib/groupstore-relay/libnats.so.*\nCopyright: 2015-2022 The NATS Authors\nLicense: Apache-2.0\n" \
        "Comment:\n A copy of Debian 12's library, of the source package cnats 3.4.1-1: later releases of Debian have another\n" \
        " version, with another interface. Upstream: https://github.com/nats-io/nats.c"
}
{ print }
