package appid

import "testing"

// Every recogniser takes any bytes, in any place of a flow, and says the same of the same view.
func FuzzRecognisers(f *testing.F) {
	for i := range examples {
		e := &examples[i]
		f.Add(e.port, []byte(e.payloads[0]), []byte(e.payloads[len(e.payloads)-1]))
	}
	for i := range specified {
		e := &specified[i]
		f.Add(e.port, []byte(e.payloads[0]), []byte(e.payloads[len(e.payloads)-1]))
		f.Add(e.port, []byte(e.payloads[len(e.payloads)-1]), []byte(e.wrong[0]))
	}
	for _, r := range recordings(f) {
		if n := len(r.packets); n > 2 {
			f.Add(r.packets[0].Destination, r.packets[n/2].Payload, r.packets[n/2-1].Payload)
		}
	}
	f.Fuzz(func(t *testing.T, port uint16, data, before []byte) {
		if len(data) == 0 || len(data) > 4096 {
			return
		}
		var mine, other payload
		other.keep(before)
		for i := range recognisers {
			for nth := range 3 {
				v := view{
					p: data, nth: nth / 2, replies: nth, source: 40000, destination: port, reply: nth == 1, mine: &mine,
					other: &other, began: &mine, answers: &other,
				}
				if a, b := recognisers[i].match(&v), recognisers[i].match(&v); a != b {
					t.Fatalf("%v: %v, then %v", recognisers[i].protocol, a, b)
				}
				mine.keep(before)
			}
		}
	})
}

// The frames of an Initial packet are a peer's, and bounded in what is kept of them.
func FuzzFrames(f *testing.F) {
	f.Add([]byte{6, 0, 4, 1, 0, 0, 0, 2, 0, 0, 0, 0, 6, 2, 1, 9})
	f.Fuzz(func(t *testing.T, p []byte) {
		var i initial
		for range 3 {
			i.frames(p)
			i.hello()
		}
		if len(i.data) > maxHello || len(i.have) > maxSpans {
			t.Fatalf("%d bytes, %d spans", len(i.data), len(i.have))
		}
		for _, s := range i.have {
			if s.from >= s.to || s.to > len(i.data) || s.from < 0 {
				t.Fatalf("%v of %d", s, len(i.data))
			}
		}
	})
}
