package proxyproto_test

import (
	"fmt"
	"net/netip"

	"github.com/millrace/millrace/proxyproto"
)

// A proxy sends a header, and a server reads it.
func Example() {
	client, listener := netip.MustParseAddrPort("198.18.0.1:56324"), netip.MustParseAddrPort("198.18.0.2:443")
	h := proxyproto.TCP(2, client, listener)
	h.TLVs, _ = h.TLVs.Append(proxyproto.TypeAuthority, []byte("www.example.org"))
	sent, err := h.Append(nil)
	if err != nil {
		fmt.Println(err)
	}

	received, n, err := proxyproto.Parse(append(sent, "GET / HTTP/1.1\r\n"...), 0)
	name, _ := received.TLVs.Find(proxyproto.TypeAuthority)
	fmt.Println(received.Source, string(name), n == len(sent), err)
	// Output: 198.18.0.1:56324 www.example.org true <nil>
}
