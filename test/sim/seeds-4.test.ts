import { seedsHold } from './seeds.ts'

seedsHold(3)
