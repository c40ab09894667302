package http1

import "bytes"

// KeepHead makes the machine keep a copy of each header as it came, from the next one on: Input changes names in place.
func (m *Machine) KeepHead(on bool) { m.keepsHead = on }

// Head returns the header of the event Headers as it came, with the empty line. It is valid until the next message begins. Of one that
// was not kept, names of fields are written as most senders do: each word begins with a capital letter.
func (m *Machine) Head() []byte {
	if len(m.head) > 0 {
		return m.head
	}
	end := m.begins + m.lineStart(len(m.lines)) + len("\r\n")
	head := bytes.Clone(m.buf[m.begins:min(end, len(m.buf))])
	spell(head, m.message.Spellings)
	return head
}

// keep copies a header that is complete.
func (m *Machine) keep() {
	m.head = m.head[:0]
	if m.keepsHead {
		m.head = append(m.head, m.buf[m.begins:]...)
	}
}
