package role

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync/atomic"
	"testing"

	theirs "github.com/quic-go/qpack"

	"github.com/millrace/millrace/bench/harness"
	"github.com/millrace/millrace/http3/qpack"
)

// browserFields are those of a request as Chromium sends it for a page.
var browserFields = []qpack.Field{
	{Name: ":method", Value: "GET"},
	{Name: ":authority", Value: "www.example.com"},
	{Name: ":scheme", Value: "https"},
	{Name: ":path", Value: "/"},
	{Name: "cache-control", Value: "max-age=0"},
	{Name: "sec-ch-ua", Value: `"Not)A;Brand";v="8", "Chromium";v="138", "Google Chrome";v="138"`},
	{Name: "sec-ch-ua-mobile", Value: "?0"},
	{Name: "sec-ch-ua-platform", Value: `"Linux"`},
	{Name: "upgrade-insecure-requests", Value: "1"},
	{Name: "user-agent", Value: "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/138.0.0.0 Safari/537.36"},
	{Name: "accept", Value: "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,image/apng,*/*;q=0.8"},
	{Name: "sec-fetch-site", Value: "none"},
	{Name: "sec-fetch-mode", Value: "navigate"},
	{Name: "sec-fetch-user", Value: "?1"},
	{Name: "sec-fetch-dest", Value: "document"},
	{Name: "accept-encoding", Value: "gzip, deflate, br, zstd"},
	{Name: "accept-language", Value: "en-US,en;q=0.9,de;q=0.8"},
	{Name: "priority", Value: "u=0, i"},
	{Name: "cookie", Value: "session=0123456789abcdef0123456789abcdef"},
	{Name: "if-none-match", Value: `W/"5e15153d-120f"`},
}

// openQPACK plays the contestants of qpack-decode: a warm dynamic table, or literals only, which is all that
// quic-go knows.
func openQPACK(o roleOptions) (roleWork, error) {
	encoder, decoder := qpack.NewEncoder(qpack.EncoderOptions{}), qpack.NewDecoder(qpack.DecoderOptions{MaxCapacity: 4096, MaxBlocked: 16})
	if o.as == "warm" {
		encoder.SetPeer(4096, 16)
	}
	var s qpack.Section
	var section, out []byte
	for stream := range uint64(4) {
		section = encoder.Encode(section[:0], stream, browserFields)
		if err := decoder.Instructions(encoder.AppendStream(nil)); err != nil {
			return roleWork{}, err
		}
		if done, err := decoder.Decode(stream, section, &s); !done || err != nil {
			return roleWork{}, fmt.Errorf("decoding: %v, %w", done, err)
		}
		if err := encoder.Acknowledgments(decoder.AppendStream(nil)); err != nil {
			return roleWork{}, err
		}
	}
	step := func() error {
		if _, err := decoder.Decode(4, section, &s); err != nil {
			return err
		}
		out = decoder.AppendStream(out[:0])
		return nil
	}
	version := runtime.Version()
	if o.as == "quic-go" {
		version = harness.ModuleVersion("github.com/quic-go/qpack")
		peer := theirs.NewDecoder()
		step = func() error {
			next := peer.Decode(section)
			for n := 0; ; n++ {
				_, err := next()
				switch {
				case errors.Is(err, io.EOF) && n == len(browserFields):
					return nil
				case err != nil:
					return err
				}
			}
		}
	}
	if err := step(); err != nil {
		return roleWork{}, err
	}
	allocs := testing.AllocsPerRun(100, func() { _ = step() })
	var done atomic.Uint64
	return roleWork{
		version: version,
		step: func() error {
			for range 1000 {
				if err := step(); err != nil {
					return err
				}
			}
			done.Add(1000)
			return nil
		},
		counts: func() (map[string]uint64, error) {
			return map[string]uint64{"sections": done.Load(), "allocs": uint64(allocs)}, nil
		},
	}, nil
}
