import { seedsHold } from './seeds.ts'

seedsHold(2)
