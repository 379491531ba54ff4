# ruff: noqa
"""Run a few convolutions under CUDNN_LOGLEVEL_DBG=3 (an experiment): python scripts/convolution_logged.py"""
import sys
from pathlib import Path
sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))
import torch
from memprof.simulate.convolutions import Convolution, table
from convolution_grid import measure
for b,i,s,o,k,st,dt,cl in [(64,256,(8,8),256,(3,3),(1,1),'bf16',False),(2,2048,(7,7),512,(1,1),(1,1),'f32',True),(32,256,(16,16),512,(2,2),(2,2),'f32',True)]:
    c=Convolution(batch=b,inputs=i,spatial=s,outputs=o,kernel=k,stride=st,padding=((k[0]-1)//2,)*2,dilation=(1,1),groups=1,transposed=False,dtype=dt,channels_last=cl)
    print(c, measure(c), table().get(c), flush=True)
