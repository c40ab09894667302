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
