package h3cases

import "strings"

// list collects cases that differ from a good one.
type list struct {
	good Case
	all  []Case
}

func (l *list) put(section, name string, change func(*Case)) {
	c := l.good
	c.Section, c.Name = section, name
	change(&c)
	l.all = append(l.all, c)
}

// control adds a case by the bytes of the control stream.
func (l *list) control(section, name, bytes string, w want) {
	l.put(section, name, func(c *Case) { c.control, c.want = bytes, w })
}

// uniStream adds a case by further unidirectional streams.
func (l *list) uniStream(section, name string, w want, streams ...uni) {
	l.put(section, name, func(c *Case) { c.uni, c.want = streams, w })
}

// shared has the cases that are the same for servers and clients: control streams, settings, QPACK.
func shared(good Case, server bool) []Case {
	l := &list{good: good}
	l.uniStreams()
	l.controlFrames()
	l.settings()
	l.qpackStreams()
	return append(l.all, sections(good, server)...)
}

// uniStreams adds the cases of RFC 9114 6.2.
func (l *list) uniStreams() {
	begin := controlStream + settings()
	l.uniStream("9114 6.2", "a stream of an unknown type", l.good.want, uni{varint(grease) + "anything", open})
	l.uniStream("9114 6.2", "a stream of an unknown type that ends", l.good.want, uni{varint(grease) + "anything", fin})
	l.uniStream("9114 6.2", "a stream that ends before its type", l.good.want, uni{"", fin})
	l.uniStream("9114 6.2", "a stream that is reset before its type", l.good.want, uni{"", reset})
	l.uniStream("9114 6.2", "a stream that ends within its type", l.good.want, uni{"\x40", fin})
	l.uniStream("9114 6.2.1", "a second control stream", closes(streamCreationError), uni{begin, open})
	l.put("9114 6.2.1", "the control stream ends", func(c *Case) { c.controlEnd, c.want = fin, closes(closedCriticalStream) })
	l.put("9114 6.2.1", "the control stream is reset", func(c *Case) { c.controlEnd, c.want = reset, closes(closedCriticalStream) })
	l.control("9114 6.2.1", "the control stream begins with GOAWAY", controlStream+frame(goAway, "\x00")+settings(), closes(missingSettings))
	l.control("9114 6.2.1", "the control stream begins with an unknown frame", controlStream+frame(grease, "x")+settings(), closes(missingSettings))
	l.control("9114 6.2.1", "the control stream begins with DATA", controlStream+frame(data, "x"), closes(missingSettings, frameUnexpected))
}

// controlFrames adds the cases of RFC 9114 7.2: frames of the control stream.
func (l *list) controlFrames() {
	begin := controlStream + settings()
	l.control("9114 7.2.1", "DATA on the control stream", begin+frame(data, "x"), closes(frameUnexpected))
	l.control("9114 7.2.2", "HEADERS on the control stream", begin+headers("x", "1"), closes(frameUnexpected))
	l.control("9114 7.2.5", "PUSH_PROMISE on the control stream", begin+frame(pushPromise, "\x00"+section("x", "1")), closes(frameUnexpected))
	l.control("9114 7.2.4", "a second SETTINGS frame", begin+settings(), closes(frameUnexpected))
	l.control("9114 9", "unknown frames on the control stream", begin+frame(grease, "x")+frame(grease, "")+frame(0x21, strings.Repeat("x", 5000)), l.good.want)
	for name, kind := range map[string]uint64{"PRIORITY": 0x2, "PING": 0x6, "WINDOW_UPDATE": 0x8, "CONTINUATION": 0x9} {
		l.control("9114 7.2.8", name+" of HTTP/2 on the control stream", begin+frame(kind, "\x00"), closes(frameUnexpected))
	}
	l.control("9114 7.2.6", "GOAWAY that becomes greater", begin+frame(goAway, "\x00")+frame(goAway, "\x04"), closes(idError))
	l.control("9114 7.1", "GOAWAY without an ID", begin+frame(goAway, ""), closes(frameError))
	l.control("9114 7.1", "GOAWAY with more than an ID", begin+frame(goAway, "\x00\x00"), closes(frameError))
	l.control("9114 7.1", "GOAWAY with a cut ID", begin+frame(goAway, "\x40"), closes(frameError))
	l.control("9114 7.1", "CANCEL_PUSH without an ID", begin+frame(cancelPush, ""), closes(frameError))
}

// settings adds the cases of RFC 9114 7.2.4.
func (l *list) settings() {
	set := func(pairs ...uint64) string { return controlStream + settings(pairs...) }
	l.control("9114 7.2.4", "unknown settings", set(grease, 5, 0x4242, 1<<40), l.good.want)
	l.control("9114 7.2.4", "a setting twice", set(0x6, 1000, 0x6, 1000), closes(settingsError))
	l.control("9114 7.2.4", "an unknown setting twice", set(grease, 1, grease, 2), closes(settingsError))
	for id := uint64(2); id <= 5; id++ {
		l.control("9114 7.2.4.1", "the setting "+string(rune('0'+id))+" of HTTP/2", set(id, 1), closes(settingsError))
	}
	l.control("9114 7.1", "a setting without a value", controlStream+frame(settingsType, varint(0x6)), closes(frameError))
	l.control("9114 7.1", "a setting with a cut value", controlStream+frame(settingsType, varint(0x6)+"\x40"), closes(frameError))
	l.control("9220 5", "SETTINGS_ENABLE_CONNECT_PROTOCOL of 2", set(0x8, 2), closes(settingsError))
	l.control("9297 2.1.1", "SETTINGS_H3_DATAGRAM of 2", set(0x33, 2), closes(settingsError))
}

// qpackStreams adds the cases of RFC 9204 4.2 to 4.4: the streams of QPACK, instructions and acknowledgments.
func (l *list) qpackStreams() {
	enc, dec := func(p string) uni { return uni{encoderStream + p, open} }, func(p string) uni { return uni{decoderStream + p, open} }
	l.uniStream("9204 4.2", "encoder and decoder stream", l.good.want, enc(""), dec(""))
	l.uniStream("9204 4.2", "a second encoder stream", closes(streamCreationError), enc(""), enc(""))
	l.uniStream("9204 4.2", "a second decoder stream", closes(streamCreationError), dec(""), dec(""))
	l.uniStream("9204 4.2", "the encoder stream ends", closes(closedCriticalStream), uni{encoderStream, fin})
	l.uniStream("9204 4.2", "the decoder stream ends", closes(closedCriticalStream), uni{decoderStream, fin})

	// RFC 9204 4.3: instructions. A peer without a table finds fault with the first.
	instruction := func(section, name, p string) {
		l.uniStream(section, name, closes(encoderStreamError), enc(p))
	}
	const capacity = "\x3f\xe1\x01" // 256
	instruction("9204 4.3.1", "a capacity of 2^30", prefixed(0x20, 5, 1<<30))
	instruction("9204 4.1.1", "a capacity of 2^70", "\x3f"+strings.Repeat("\xff", 10)+"\x01")
	instruction("9204 3.2.2", "an insert into a table of 0 bytes", "\x41a\x01b")
	instruction("9204 3.2.2", "an insert that exceeds the table", capacity+"\x41a\x7f\x81\x02"+strings.Repeat("x", 256))
	instruction("9204 4.3.2", "a name of static entry 99", capacity+"\xff\x24\x01a")
	instruction("9204 4.3.2", "a name of a dynamic entry that is not there", capacity+"\x80\x01a")
	instruction("9204 4.3.4", "a duplicate of what is not there", capacity+"\x00")
	instruction("9204 4.1.2", "EOS in a string", capacity+"\xc1\x84\xff\xff\xff\xff")

	// RFC 9204 4.4: acknowledgments.
	l.uniStream("9204 4.4.1", "an acknowledgment of a section that was not sent", closes(decoderStreamError), dec("\x8c"))
	l.uniStream("9204 4.4.2", "a cancellation of a stream without sections", l.good.want, dec("\x4c"))
	l.uniStream("9204 4.4.3", "an increment of 0", closes(decoderStreamError), dec("\x00"))
	l.uniStream("9204 4.4.3", "an increment beyond what was inserted", closes(decoderStreamError), dec("\x08"))
}

// sections is RFC 9204 4.5: field sections that cannot be decoded, and the dynamic table.
func sections(good Case, server bool) (cs []Case) {
	failed := closes(decompressionFailed)
	for name, p := range map[string]string{
		"an empty field section":                          "",
		"a field section of one byte":                     "\x00",
		"static entry 99":                                 "\x00\x00\xff\x24",
		"a name of static entry 99":                       "\x00\x00\x5f\x54\x01a",
		"a dynamic entry without Required Insert Count":   "\x00\x00\x80",
		"a post-base entry without Required Insert Count": "\x00\x00\x10",
		"a Required Insert Count that cannot be":          "\xff\xff\xff\x7f\x00\x80",
		"a negative Base":                                 "\x00\x80\xd1",
		"a name that is cut":                              "\x00\x00\x23a",
		"a value that is cut":                             "\x00\x00\x51\x05a",
		"an integer of 70 bits":                           "\x00\x00\xff" + strings.Repeat("\xff", 10) + "\x01",
		"EOS in a value":                                  "\x00\x00\x51\x84\xff\xff\xff\xff",
		"8 bits of padding":                               "\x00\x00\x51\x82\x1f\xff",
		"padding of zeros":                                "\x00\x00\x51\x81\x18",
	} {
		c := good
		c.Section, c.Name, c.message, c.want = "9204 4.5", name, frame(headersType, p), failed
		cs = append(cs, c)
	}
	// The first instruction sets the capacity to 256; then an insert of the path /dyn, or of x-dyn.
	insert, line := "\xc1\x04/dyn", "\x02\x00\xd1\xd7\xc0\x80"
	insertion := "\x3f\xe1\x01" + insert
	line = "\x02\x00\xd1\xd7\x50\x02h3\x80" // GET, https, :authority h3, the entry
	if !server {
		insertion = "\x3f\xe1\x01\x45x-dyn\x01v"
		line = "\x02\x00\xd9\x80" // 200, the entry
	}
	dynamic := func(section, name string, change func(*Case)) {
		c := good
		c.Section, c.Name, c.Dynamic, c.message, c.end = section, name, true, frame(headersType, line), fin
		change(&c)
		cs = append(cs, c)
	}
	dynamic("9204 2.2", "a reference to the dynamic table", func(c *Case) { c.uni = []uni{{encoderStream + insertion, open}} })
	dynamic("9204 2.2.1", "a blocked field section", func(c *Case) { c.late = uni{encoderStream + insertion, open} })
	dynamic("9204 2.2.3", "a reference beyond the Required Insert Count", func(c *Case) {
		c.uni = []uni{{encoderStream + insertion + insertion[3:], open}}
		c.message, c.want = frame(headersType, "\x02\x01"+line[2:]), failed
	})
	return cs
}

// clientControl has cases of control streams that only servers send.
func clientControl(good Case) (cs []Case) {
	control := func(section, name, frames string, w want) {
		c := good
		c.Section, c.Name, c.control, c.want = section, name, controlStream+settings()+frames, w
		cs = append(cs, c)
	}
	control("9114 7.2.7", "MAX_PUSH_ID from a server", frame(maxPushID, "\x00"), closes(frameUnexpected))
	control("9218 7.2", "PRIORITY_UPDATE from a server", frame(priority, "\x00u=1"), closes(frameUnexpected))
	control("9218 7.2", "PRIORITY_UPDATE of a push from a server", frame(priorityOfPush, "\x00u=1"), closes(frameUnexpected))
	control("9114 7.2.6", "GOAWAY with a server's stream", frame(goAway, "\x01"), closes(idError))
	control("9114 7.2.6", "GOAWAY with a unidirectional stream", frame(goAway, "\x02"), closes(idError))
	control("9114 5.2", "GOAWAY after the request", frame(goAway, "\x40\x40"), want{ok: true})
	control("9114 7.2.3", "CANCEL_PUSH of what was not permitted", frame(cancelPush, "\x00"), closes(idError))
	c := good
	c.Section, c.Name, c.uni, c.want = "9114 4.6", "a push that was not permitted", []uni{{pushStreamType + "\x00", open}}, closes(idError)
	cs = append(cs, c)
	c = good
	c.Section, c.Name, c.want = "9114 7.2.5", "PUSH_PROMISE that was not permitted", closes(idError)
	c.message, c.end = frame(pushPromise, "\x00"+section(":method", "GET", ":scheme", "https", ":authority", "h", ":path", "/")), open
	return append(cs, c)
}

// responseFrames is RFC 9114 4.1, 7 and 9: which frames a response consists of.
func responseFrames() (cs []Case) {
	ok, unexpected := want{ok: true}, closes(frameUnexpected)
	head := headers(":status", "200")
	body := frame(data, "hello")
	trailer := headers("x-trailer", "1")
	unknown := frame(grease, "anything")
	cs = add(cs, "9114 4.1", "a response without content", head, fin, ok)
	cs = add(cs, "9114 4.1", "a response with content", head+body+body, fin, ok)
	cs = add(cs, "9114 4.1", "trailers", head+body+trailer, fin, ok)
	cs = add(cs, "9114 4.1", "interim responses", headers(":status", "103")+headers(":status", "102")+head+body, fin, ok)
	cs = add(cs, "9114 4.1", "DATA before HEADERS", body+head, fin, unexpected)
	cs = add(cs, "9114 4.1", "DATA after an interim response", headers(":status", "103")+body+head, fin, unexpected)
	cs = add(cs, "9114 4.1", "HEADERS after trailers", head+body+trailer+trailer, fin, unexpected)
	cs = add(cs, "9114 4.1", "DATA after trailers", head+trailer+body, fin, unexpected)
	cs = add(cs, "9114 4.1", "no frame at all", "", fin, malformed)
	cs = add(cs, "9114 4.1", "an interim response only", headers(":status", "103"), fin, malformed)
	cs = append(cs, Case{Section: "9114 7.1", Name: "frames cut anywhere", message: head + unknown + body + trailer, end: fin, chop: 1, want: ok})
	cs = add(cs, "9114 9", "unknown frames", unknown+head+unknown+body+frame(grease, "")+trailer+unknown, fin, ok)
	cs = add(cs, "9114 7.2.3", "CANCEL_PUSH in a response", head+frame(cancelPush, "\x00"), open, unexpected)
	cs = add(cs, "9114 7.2.4", "SETTINGS in a response", head+settings(), open, unexpected)
	cs = add(cs, "9114 7.2.6", "GOAWAY in a response", head+frame(goAway, "\x00"), open, unexpected)
	cs = add(cs, "9114 7.2.7", "MAX_PUSH_ID in a response", head+frame(maxPushID, "\x00"), open, unexpected)
	cs = append(cs, cutFrames("", head)...)
	return append(cs, reservedFrames(head)...)
}

// responseFields is RFC 9114 4.2, 4.3.2 and 4.1.2.
func responseFields() (cs []Case) {
	for _, f := range badFields {
		cs = add(cs, f.section, f.name, headers(":status", "200", f.field, f.value), fin, malformed)
	}
	bad := func(section, name, message string) { cs = add(cs, section, name, message, fin, malformed) }
	bad("9114 4.3.2", "no :status", headers("x", "1"))
	bad("9114 4.3.2", "no fields at all", headers())
	bad("9114 4.3.2", ":status of two digits", headers(":status", "20"))
	bad("9114 4.3.2", ":status of letters", headers(":status", "abc"))
	bad("9114 4.3", ":status twice", headers(":status", "200", ":status", "200"))
	bad("9114 4.3", ":status after a field", headers("x", "1", ":status", "200"))
	bad("9114 4.3", ":path in a response", headers(":status", "200", ":path", "/"))
	bad("9114 4.5", "the status 101", headers(":status", "101"))
	bad("9114 4.1.2", "content longer than Content-Length", headers(":status", "200", "content-length", "4")+frame(data, "hello"))
	bad("9114 4.1.2", "content shorter than Content-Length", headers(":status", "200", "content-length", "6")+frame(data, "hello"))
	bad("9114 4.1.2", "two different Content-Length", headers(":status", "200", "content-length", "5", "content-length", "6")+frame(data, "hello"))
	bad("9114 4.3", "a pseudo-header in trailers", headers(":status", "200")+headers(":status", "200"))
	bad("9114 4.2", "Connection in trailers", headers(":status", "200")+headers("connection", "close"))
	cs = add(cs, "9110 6.4.1", "304 with the Content-Length of what it has not", headers(":status", "304", "content-length", "100"), fin, want{ok: true})
	return cs
}

// datagramCases is RFC 9297 2.1.
func datagramCases() (cs []Case) {
	for _, d := range []struct {
		name, payload string
		w             want
	}{
		{"a datagram without a stream", "", closes(datagramError)},
		{"a datagram with a cut stream", "\x40", closes(datagramError)},
		{"a datagram of a stream beyond 2^62", "\xff\xff\xff\xff\xff\xff\xff\xff", closes(datagramError)},
		{"a datagram of a stream that is not there", "\x3fhello", answers(200)},
	} {
		cs = append(cs, Case{
			Section: "9297 2.1", Name: d.name, Datagrams: true, control: controlStream + settings(0x33, 1),
			datagram: &d.payload, message: get, end: fin, want: d.w,
		})
	}
	return cs
}
