# ruff: noqa
"""Ask cuDNN's heuristics on a card, with and without a description of it (an experiment).

    python scripts/convolution_asked.py OUTPUT_FOLDER
"""
import ctypes as C, json, sys, time, random, collections
from pathlib import Path
sys.path.insert(0, str(Path(__file__).parents[1]))
import torch
from memprof.simulate.convolutions import table, Pass
out = Path(sys.argv[1])
torch.nn.functional.conv2d(torch.zeros(1, 1, 8, 8, device="cuda"), torch.zeros(1, 1, 3, 3, device="cuda"))
lib = C.CDLL("libcudnn.so.9")
i64=C.c_int64; P=C.c_void_p
create,setattr_,getattr_,fin,destroy=(getattr(lib,'cudnnBackend'+n) for n in ('CreateDescriptor','SetAttribute','GetAttribute','Finalize','DestroyDescriptor'))
create.argtypes=[C.c_int,C.POINTER(P)]
setattr_.argtypes=[P,C.c_int,C.c_int,i64,P]
getattr_.argtypes=[P,C.c_int,C.c_int,i64,P,P]
fin.argtypes=[P]; destroy.argtypes=[P]
handle=P(); print("cudnnCreate", lib.cudnnCreate(C.byref(handle)))
class Err(Exception): pass
def err():
    b=C.create_string_buffer(1000); lib.cudnnGetLastErrorString(b,C.c_size_t(1000)); return b.value.decode()
def ck(r,what):
    if r: raise Err(f"{what}: {r} {err()}")
class D:
    def __init__(s,kind):
        s.p=P(); ck(create(kind,C.byref(s.p)),f'create {kind}')
    def set(s,name,typ,vals):
        ct={0:P,15:P,3:i64,1:C.c_int,7:C.c_int,8:C.c_int,4:C.c_float,23:C.c_int32}[typ]
        a=(ct*len(vals))(*[v.p.value if isinstance(v,D) else getattr(v,'value',v) for v in vals])
        ck(setattr_(s.p,name,typ,len(vals),a),f'set {name}'); return s
    def fin(s,what=''):
        ck(fin(s.p),'finalize '+what); return s
    def __del__(s):
        if s.p: destroy(s.p)
    def count(s,name,typ):
        n=i64(); ck(getattr_(s.p,name,typ,0,C.byref(n),None),f'get {name}'); return n.value
real=D(38).set(2700,23,[0]).fin('deviceprop')
n=i64(); ck(getattr_(real.p,2702,24,0,C.byref(n),None),'json size')
buf=C.create_string_buffer(n.value); ck(getattr_(real.p,2702,24,n.value,C.byref(n),buf),'json')
(out/'deviceprop.json').write_bytes(buf.raw)
print(buf.raw)
def from_json(s):
    d=D(38); ck(setattr_(d.p,2702,24,len(s),s),'json'); return d.fin('deviceprop')
again=from_json(buf.raw)
DT={'f32':0,'f16':2,'bf16':9}
def tensor(uid,dims,strides,dt,align=16):
    return D(17).set(901,1,[DT[dt]]).set(902,3,dims).set(903,3,strides).set(906,3,[uid]).set(900,3,[align]).fin('tensor')
def strides(dims,cl):
    if not cl:
        s=[1]*len(dims)
        for k in range(len(dims)-2,-1,-1): s[k]=s[k+1]*dims[k+1]
        return s
    s=[0]*len(dims); s[1]=1; acc=dims[1]
    for k in range(len(dims)-1,1,-1): s[k]=acc; acc*=dims[k]
    s[0]=acc; return s
OPS={0:(10,dict(x=704,w=703,y=705,c=702,a=700,b=701)),1:(12,dict(x=710,w=709,y=711,c=708,a=706,b=707)),2:(11,dict(x=716,w=715,y=717,c=714,a=712,b=713))}
def graph(c,which,x,w,y,h):
    kind,at=OPS[which]
    nd=len(c['stride'])
    cv=D(1).set(100,1,[0]).set(101,7,[1]).set(106,3,[nd]).set(103,3,c['stride']).set(105,3,c['padding']).set(104,3,c['padding']).set(102,3,c['dilation']).fin('conv')
    op=D(kind)
    tx,tw,ty=tensor(ord('x'),*x),tensor(ord('w'),*w),tensor(ord('y'),*y)
    op.set(at['x'],15,[tx]).set(at['w'],15,[tw]).set(at['y'],15,[ty]).set(at['c'],15,[cv]).set(at['a'],4,[1.0]).set(at['b'],4,[0.0]).fin('op')
    g=D(15).set(801,15,[op])
    if h: g.set(800,0,[handle])
    g.keep=(tx,tw,ty,cv,op)
    return g.fin('opgraph')
def configs(g,dev,mode=0):
    h=D(4).set(201,15,[g]).set(200,8,[mode])
    if dev: h.set(204,15,[dev])
    h.fin('heur')
    n=h.count(202,15)
    cfgs=[D(3) for _ in range(n)]
    arr=(P*n)(*[c.p.value for c in cfgs]); got=i64()
    ck(getattr_(h.p,202,15,n,C.byref(got),arr),'results')
    return cfgs[:got.value]
def engine(cfg):
    e=D(2); arr=(P*1)(e.p.value); n=i64()
    ck(getattr_(cfg.p,300,15,1,C.byref(n),arr),'engine')
    idx=i64(); ck(getattr_(e.p,1301,3,1,C.byref(n),C.byref(idx)),'index')
    notes=(C.c_int*10)(); ck(getattr_(e.p,1303,11,10,C.byref(n),notes),'notes')
    return idx.value,list(notes[:n.value])
def plan_ws(cfg,dev):
    p=D(5).set(401,15,[cfg])
    if dev: p.set(407,15,[dev])
    else: p.set(400,0,[handle])
    p.fin('plan')
    v=i64(); n=i64(); ck(getattr_(p.p,402,3,1,C.byref(n),C.byref(v)),'planws'); return v.value
def describe(c):
    sp,o=list(c.spatial),list(c.output_spatial())
    k,st,pa,di=map(list,(c.kernel,c.stride,c.padding,c.dilation))
    if len(k)==1: sp,o,k,st,pa,di=[1]+sp,[1]+o,[1]+k,[1]+st,[0]+pa,[1]+di
    x=[c.batch,c.inputs]+sp; y=[c.batch,c.outputs]+o
    w=([c.inputs,c.outputs//c.groups] if c.transposed else [c.outputs,c.inputs//c.groups])+k
    return x,w,y,dict(stride=st,padding=pa,dilation=di)
def full(c,which,mode,how,most=6):
    x,w,y,conv=describe(c); which=int(which)
    if c.transposed: x,y=y,x; which=[1,0,2][which]
    T=lambda d:(d,strides(d,c.channels_last),c.dtype,16)
    g=graph(conv,which,T(x),T(w),T(y),how=='handle')
    dev={'handle':None,'real':real,'json':again}[how]
    res=[]
    for k in configs(g,dev,mode):
        idx,notes=engine(k)
        try: res.append((idx,notes,plan_ws(k,dev)))
        except Err as e: res.append((idx,notes,str(e)[:60]))
        if len(res)==most: break
    return res
items=random.Random(0).sample(list(table().items()),700)
score=collections.Counter(); shown=[]
started=time.time()
for c,v in items:
    if time.time()-started>45: break
    for w in Pass:
        if v[w] is None: continue
        row={}
        for how in ('handle','real','json'):
            for mode in (0,3):
                try: row[how,mode]=full(c,w,mode,how)
                except Err as e: row[how,mode]=[str(e)]
                first=next((r[2] for r in row[how,mode] if len(r)==3 and 1 not in r[1] and isinstance(r[2],int)),None)
                score[how,mode,first==v[w]]+=1
        if len(shown)<120: shown.append([repr(c),int(w),v[w],{f'{a}{b}':r for (a,b),r in row.items()}])
print(score)
(out/'asked.json').write_text(json.dumps(dict(score={str(k):v for k,v in score.items()},shown=shown)))
