# A queue pair of rdma_rxe that a test drives by lines over TCP port 18530 (rxe_test.go). Needs python3-pyverbs.
import socket, json, hashlib, sys, time
from pyverbs.device import Context
from pyverbs.pd import PD
from pyverbs.mr import MR
from pyverbs.cq import CQ
from pyverbs.qp import QP, QPInitAttr, QPAttr, QPCap
from pyverbs.addr import AHAttr, GlobalRoute, GID
from pyverbs.wr import SGE, SendWR, RecvWR
import pyverbs.enums as e

SIZE = 1 << 18
ctx = Context(name="rxe0")
srv = socket.socket(); srv.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
srv.bind(("0.0.0.0", 18530)); srv.listen(4)
print("VERBS READY", flush=True)

def serve(f):
    pd = PD(ctx)
    acc = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_READ | e.IBV_ACCESS_REMOTE_ATOMIC
    mr = MR(pd, SIZE, acc)
    cq = CQ(ctx, 64)
    qp = QP(pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=cq, rcq=cq, cap=QPCap(max_send_wr=32, max_recv_wr=32, max_send_sge=1, max_recv_sge=1)), QPAttr())
    gid = str(ctx.query_gid(1, 1))
    f.write(json.dumps(dict(qpn=qp.qp_num, psn=0xfffff8, gid=gid, rkey=mr.rkey, addr=mr.buf)) + "\n"); f.flush()
    peer = json.loads(f.readline())
    a = QPAttr(qp_state=e.IBV_QPS_INIT); a.port_num = 1; a.qp_access_flags = acc
    qp.to_init(a)
    gr = GlobalRoute(dgid=GID(peer["gid"]), sgid_index=1)
    a = QPAttr(qp_state=e.IBV_QPS_RTR); a.port_num = 1; a.path_mtu = e.IBV_MTU_1024; a.dest_qp_num = peer["qpn"]; a.rq_psn = peer["psn"]
    a.max_dest_rd_atomic = 8; a.min_rnr_timer = 12
    a.ah_attr = AHAttr(gr=gr, is_global=1, port_num=1)
    qp.to_rtr(a)
    a.qp_state = e.IBV_QPS_RTS; a.timeout = 17; a.retry_cnt = 7; a.rnr_retry = 7; a.sq_psn = 0xfffff8; a.max_rd_atomic = 8
    qp.to_rts(a)
    f.write("ready\n"); f.flush()

    def wait():
        end = time.time() + 30
        while time.time() < end:
            n, wcs = cq.poll(1)
            if n:
                return wcs[0]
            time.sleep(0.001)
        raise Exception("no completion")

    for line in f:
        c = line.split()
        op, n = c[0], int(c[1])
        out = ""
        if op == "fill":
            mr.write(bytes((i * 7 + n) & 255 for i in range(SIZE)), SIZE)
        elif op == "hash":
            out = hashlib.sha256(mr.read(n, int(c[2]))).hexdigest()
        elif op in ("write", "read", "fadd", "cswap"):
            code = dict(write=e.IBV_WR_RDMA_WRITE, read=e.IBV_WR_RDMA_READ, fadd=e.IBV_WR_ATOMIC_FETCH_AND_ADD, cswap=e.IBV_WR_ATOMIC_CMP_AND_SWP)[op]
            size = n if op in ("write", "read") else 8
            wr = SendWR(wr_id=1, opcode=code, num_sge=1, sg=[SGE(mr.buf, size, mr.lkey)], send_flags=e.IBV_SEND_SIGNALED)
            if size == n:
                wr.set_wr_rdma(peer["rkey"], peer["addr"])
            else:
                wr.set_wr_atomic(peer["rkey"], peer["addr"], n, int(c[2]))
            qp.post_send(wr)
            wc = wait()
            out = str(wc.status) + " " + mr.read(8, 0).hex()
        elif op == "state":
            out = str(qp.query(e.IBV_QP_STATE)[0].qp_state)
        f.write(out + "\n"); f.flush()
    qp.close(); cq.close(); mr.close(); pd.close()

while True:
    c, _ = srv.accept()
    try:
        serve(c.makefile("rw"))
    except Exception as ex:
        print("VERBS", repr(ex), flush=True)
    c.close()
